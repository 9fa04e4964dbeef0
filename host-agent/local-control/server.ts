/** The socket by which the operator's command speaks to the running agent: its state, drain, and back. */
import { chmod, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { type AgentStatus, SOCKET_NAME } from './status.ts';

const MAX_CONNECTIONS = 8;
const REQUEST_TIMEOUT_MS = 5_000;

export interface LocalControl {
  status(): AgentStatus;
  setDraining(draining: boolean): void;
}

export interface LocalControlServer {
  close(): Promise<void>;
}

/** Call it only while this agent holds the state folder: a socket that lies there is one of a dead agent. */
export async function serveLocalControl(
  stateDir: string,
  control: LocalControl,
): Promise<Outcome<LocalControlServer>> {
  const path = join(stateDir, SOCKET_NAME);
  await rm(path, { force: true });
  const server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS }, (request, response) => {
    request.resume();
    answer(request, response, control);
  });
  server.maxConnections = MAX_CONNECTIONS;
  const fault = await new Promise<Error | undefined>((resolve) => {
    server.once('error', resolve);
    server.listen(path, () => resolve(undefined));
  });
  if (fault !== undefined) return failure('internal', `${path}: ${fault.message}`);
  server.unref();
  await chmod(path, 0o600);
  return success({
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rm(path, { force: true });
    },
  });
}

function answer({ method, url }: IncomingMessage, response: ServerResponse, control: LocalControl): void {
  const isStatus = method === 'GET' && url === '/status';
  const isDrain = method === 'POST' && (url === '/drain' || url === '/resume');
  if (!isStatus && !isDrain) return void response.writeHead(404).end();
  if (isDrain) control.setDraining(url === '/drain');
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(control.status()));
}
