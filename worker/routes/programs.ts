/** Programs of a session: code that calls the caller's tools as functions, and the answers to those of its calls that the caller executes. */
import * as z from 'zod';
import {
  CreateProgramSchema,
  type Program,
  ProgramIdSchema,
  ProgramLanguageSchema,
  ProgramSchema,
  ProgramToolSchema,
  ToolResultsSchema,
} from '../../shared/code-mode.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { BUILT_IN_TOOLS } from '../../shared/tool.ts';
import { beginProgram, requireLanguage } from '../calls/begin-program.ts';
import { sealedCallback } from '../calls/callback.ts';
import { StreamTextSchema } from '../calls/event-stream-text.ts';
import { notFound, type OwnSession, ownSession } from '../calls/own-session.ts';
import { streamEvents } from '../calls/session-stream.ts';
import { EVENT_STREAM_MEDIA_TYPE, invalid } from '../middleware/body.ts';
import { idempotencyOf } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE } from '../objects/object-calls.ts';
import { programTools } from '../programs/permitted-tools.ts';
import { declarationsOf } from '../programs/program-tools.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';
import { acceptsEvents, EXECUTE_ERRORS, TOOL_SCOPES } from './execute.ts';
import { IDEMPOTENCY_HEADER_DOC } from './sessions.ts';

const ENDED = {
  description: 'The program, ended; one that failed is an answer too: see `status`',
  content: { 'application/json': ProgramSchema, [EVENT_STREAM_MEDIA_TYPE]: StreamTextSchema },
};
const NOT_ENDED = {
  description: 'The program has not ended: it was detached, or `pending` are calls that it waits for',
  content: { 'application/json': ProgramSchema },
  headers: ['Location'],
};

const createProgram = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/programs',
  operationId: 'createProgram',
  summary: 'Run code that calls your tools as functions; needs the scope of its language, and of each tool',
  access: { kind: 'tenant', anyScope: [BUILT_IN_TOOLS.python.scope, BUILT_IN_TOOLS.node.scope] },
  headers: { ...IDEMPOTENCY_HEADER_DOC, Accept: '`text/event-stream` for a stream of events.' },
  body: CreateProgramSchema,
  answers: { 200: ENDED, 202: NOT_ENDED },
  errors: ['not_found', ...EXECUTE_ERRORS],
  handle: async (exchange, { params, body, raw }) => {
    const { principal, request } = exchange;
    requireLanguage(exchange, body.language);
    const streams = body.stream || acceptsEvents(request.headers.get('Accept'));
    if (streams && body.detach)
      throw invalid([{ path: 'body.detach', expected: 'false together with stream' }]);
    const session = await ownSession(exchange, params.session_id);
    const idempotency = await idempotencyOf({
      header: request.headers.get('Idempotency-Key'),
      route: `POST /v1/sessions/${session.sessionId}/programs`,
      subject: principal.subject,
      body: raw.bytes,
    });
    const callback = await sealedCallback(exchange, body.callback, { isDetached: body.detach });
    const begun = unwrap(await beginProgram(exchange, session, { request: body, idempotency, callback }));
    if (streams) {
      return streamEvents(session, { executionId: begun.program_id, encoding: 'utf-8', lastEventId: null });
    }
    return answer(session, body.detach ? begun : await ended(session, begun.program_id));
  },
});

const ProgramToolsSchema = z.object({
  language: ProgramLanguageSchema,
  tools: z.array(ProgramToolSchema.pick({ name: true, path: true, documentation: true })),
  declarations: z.string().describe('All of them as text, for whoever writes a program.'),
});

const listProgramTools = defineRoute({
  method: 'GET',
  path: '/v1/program-tools',
  operationId: 'listProgramTools',
  summary: 'What a program of this caller finds as `tools`',
  access: { kind: 'tenant', anyScope: [BUILT_IN_TOOLS.python.scope, BUILT_IN_TOOLS.node.scope] },
  query: z.strictObject({ language: ProgramLanguageSchema.default('python') }),
  answers: { 200: { description: 'Functions', content: { 'application/json': ProgramToolsSchema } } },
  errors: [],
  handle: async (exchange, { query: { language } }) => {
    const tools = await programTools(exchange, { language });
    return reply(200, {
      language,
      tools: tools.map(({ name, path, documentation }) => ({ name, path, documentation })),
      declarations: declarationsOf(tools),
    });
  },
});

const getProgram = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}/programs/{program_id}',
  operationId: 'getProgram',
  summary: 'A program, with its calls and those that wait for an answer',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  answers: { 200: { description: 'The program', content: { 'application/json': ProgramSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const { session, programId } = await ownProgram(exchange, params);
    return reply(200, unwrap(await session.call((stub) => stub.program(session.caller, programId), SAFE)));
  },
});

const answerCalls = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/programs/{program_id}/tool_results',
  operationId: 'answerCalls',
  summary: 'Answer calls of a program that its caller executes, in any order',
  access: { kind: 'tenant', anyScope: TOOL_SCOPES },
  body: ToolResultsSchema,
  answers: {
    200: { description: ENDED.description, content: { 'application/json': ProgramSchema } },
    202: NOT_ENDED,
  },
  errors: ['not_found', 'call_not_pending'],
  handle: async (exchange, { params, body }) => {
    const { session, programId } = await ownProgram(exchange, params);
    // The same answers again change nothing.
    unwrap(await session.call((stub) => stub.answerCalls(session.caller, programId, body.results), SAFE));
    if (!body.detach) return answer(session, await ended(session, programId));
    return answer(
      session,
      unwrap(await session.call((stub) => stub.program(session.caller, programId), SAFE)),
    );
  },
});

const cancelProgram = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/programs/{program_id}/cancel',
  operationId: 'cancelProgram',
  summary: 'Stop a program; its calls without an answer are void',
  access: { kind: 'tenant', scopes: ['sessions:write'] },
  answers: { 202: NOT_ENDED },
  errors: ['not_found', 'execution_not_running', 'host_unresponsive'],
  handle: async (exchange, { params }) => {
    const { session, programId } = await ownProgram(exchange, params);
    unwrap(await session.call((stub) => stub.program(session.caller, programId), SAFE));
    // Stopping twice stops once.
    unwrap(await session.call((stub) => stub.interrupt(session.caller, programId), SAFE));
    const program = unwrap(await session.call((stub) => stub.program(session.caller, programId), SAFE));
    return reply(202, program, { Location: placeOf(session, program) });
  },
});

async function ownProgram(
  exchange: Exchange<'tenant'>,
  params: { session_id: string; program_id: string },
): Promise<{ session: OwnSession; programId: string }> {
  const session = await ownSession(exchange, params.session_id);
  if (!ProgramIdSchema.safeParse(params.program_id).success) throw notFound('no such program, or not yours');
  return { session, programId: params.program_id };
}

async function ended(session: OwnSession, programId: string): Promise<Program> {
  return unwrap(await session.call((stub) => stub.waitProgram(session.caller, programId), SAFE));
}

function answer(session: OwnSession, program: Program): Response {
  if (isTerminal(program.status)) return reply(200, program);
  return reply(202, program, { Location: placeOf(session, program) });
}

function placeOf({ sessionId }: OwnSession, { program_id }: Program): string {
  return `/v1/sessions/${sessionId}/programs/${program_id}`;
}

export const programRoutes = [listProgramTools, createProgram, getProgram, answerCalls, cancelProgram];
