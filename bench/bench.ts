/** `npm run bench`: ours against the raw operation, all in one run on one machine, printed as one table. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startStack } from '../scripts/development/stack.ts';
import { locations } from '../scripts/locations.ts';
import { setUp } from '../scripts/setup/setup.ts';
import { terminalProgress } from '../scripts/setup/step.ts';
import { Api } from './api.ts';
import { measureCalls } from './calls.ts';
import { measureGateway } from './gateway.ts';
import { startRawOperations } from './raw-sandbox.ts';
import { measureStream } from './stream.ts';
import { printTable } from './table.ts';

const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-bench-'));
const places = { ...locations(process.env), stateDir };
const installation = await setUp(places, process.env, terminalProgress(process.stdout));
const stack = await startStack({ locations: places, installation, port: 0 });
const api = new Api(stack.url, await stack.token());
const raw = await startRawOperations(installation).catch(async (error: unknown) => {
  await stack.stop();
  throw error;
});
try {
  const session = await api.createSession();
  // A sandbox of the same kind for `runsc exec`: in ours it would leave work behind that our next call waits for.
  const peer = await api.createSession();
  const [hostAgent, workerd] = [stack.hostAgentPid(), stack.workerdPid()];
  if (peer.sandbox_id === null || hostAgent === undefined || workerd === undefined) {
    throw new Error('the stack is not whole');
  }
  const exec = { runscPath: installation.runscPath, stateDir, sandboxId: peer.sandbox_id };
  const calls = await measureCalls(api, session.session_id, exec, raw);
  const stream = await measureStream(api, session.session_id, raw, { hostAgent, workerd });
  await api.deleteSession(session.session_id);
  await api.deleteSession(peer.session_id);
  const gateway = await measureGateway(places, installation);
  console.log('');
  printTable([...calls, gateway, stream.line]);
  for (const note of stream.notes) console.log(note);
} finally {
  await api.close();
  await raw.stop();
  await stack.stop();
  await rm(stateDir, { recursive: true, force: true });
}
