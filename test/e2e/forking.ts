/** A program that waits for its caller, and forks of its session at that call. */
import * as z from 'zod';
import { type Program, ProgramSchema } from '../../shared/code-mode.ts';
import { RegisteredToolSchema } from '../../shared/registered-tool.ts';
import { ForkedSchema } from '../../shared/snapshot-resource.ts';
import { type ApiClient, SessionClient } from './client.ts';

const ASK = {
  description: 'Asks a person',
  kind: 'client',
  input_schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
};

export async function registerAsk(api: ApiClient): Promise<void> {
  await api.json(RegisteredToolSchema, 'PUT', '/v1/tools/people.ask', { body: ASK });
}

export async function post(session: SessionClient, path: string, body: object): Promise<Program> {
  return (await session.api.json(ProgramSchema, 'POST', `${session.path}/programs${path}`, { body })).value;
}

/** Answers all that is pending, and gives the program when it waits again or has ended. */
export function answer(session: SessionClient, program: Program, structured: unknown): Promise<Program> {
  const results = program.pending.map(({ id }) => ({ id, structured }));
  return post(session, `/${program.program_id}/tool_results`, { results });
}

export async function fork(session: SessionClient, count: number): Promise<SessionClient[]> {
  const { value } = await session.api.json(ForkedSchema, 'POST', `${session.path}/fork`, { body: { count } });
  return value.sessions.map((opened) => new SessionClient(session.api, opened));
}

const IdsSchema = z.array(z.object({ execution_id: z.string() }));

/** The program that goes on in a fork, which is the only call that it has had. */
export async function programIn(session: SessionClient): Promise<Program> {
  const [first] = IdsSchema.parse((await session.executions()).executions);
  const path = `${session.path}/programs/${first?.execution_id}`;
  return (await session.api.json(ProgramSchema, 'GET', path)).value;
}
