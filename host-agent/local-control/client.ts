/** Asks the agent that runs on a state folder. */
import { join } from 'node:path';
import { Client } from 'undici';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { type AgentStatus, AgentStatusSchema, SOCKET_NAME } from './status.ts';

const REQUEST_TIMEOUT_MS = 5_000;

export type LocalRequest = 'status' | 'drain' | 'resume';

/** `not_found` where no agent runs. */
export async function askAgent(stateDir: string, request: LocalRequest): Promise<Outcome<AgentStatus>> {
  const socketPath = join(stateDir, SOCKET_NAME);
  const client = new Client('http://agent', { connect: { socketPath } });
  try {
    const { statusCode, body } = await client.request({
      method: request === 'status' ? 'GET' : 'POST',
      path: `/${request}`,
      headersTimeout: REQUEST_TIMEOUT_MS,
      bodyTimeout: REQUEST_TIMEOUT_MS,
    });
    const parsed = AgentStatusSchema.safeParse(await body.json());
    if (statusCode === 200 && parsed.success) return success(parsed.data);
    return failure('protocol_violation', 'the running agent is of another version than this command');
  } catch (error: unknown) {
    if (isAbsent(error)) return failure('not_found', 'no agent runs on this machine');
    return failure('internal', `the agent does not answer: ${error instanceof Error ? error.message : ''}`);
  } finally {
    await client.destroy();
  }
}

function isAbsent(error: unknown): boolean {
  return (
    error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ECONNREFUSED')
  );
}
