/** Background processes of a session: they outlive the call that starts them, and end with the session. */
import * as z from 'zod';
import { toBase64 } from '../../shared/encoding.ts';
import { newId } from '../../shared/ids.ts';
import {
  MAX_COMMAND_BYTES,
  MAX_PROCESS_INPUT_BYTES,
  MAX_STOP_GRACE_MS,
  MAX_WAIT_MS,
  ProcessIdSchema,
  ProcessListSchema,
  ProcessSchema,
  ProcessStreamSchema,
  WaitedSchema,
  type WaitUntil,
} from '../../shared/program.ts';
import { StreamTextSchema } from '../calls/event-stream-text.ts';
import { notFound, ownSession } from '../calls/own-session.ts';
import { askProcess, LogsSchema, processLogs } from '../calls/process-call.ts';
import { readTransfer, TRANSFER_ERRORS } from '../calls/session-transfer.ts';
import { EVENT_STREAM_MEDIA_TYPE, invalid, JSON_MEDIA_TYPE } from '../middleware/body.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';
import { rawStdin, StdinQuerySchema, stdinOf } from './stdin-body.ts';

const PATH = '/v1/sessions/{session_id}/processes';

const startProcess = defineRoute({
  method: 'POST',
  path: PATH,
  operationId: 'startProcess',
  summary: 'Start a command in the background; it goes on after this call, until it ends or the session does',
  access: { kind: 'tenant', scopes: ['tools:shell'] },
  body: z.strictObject({
    command: z.string().min(1).max(MAX_COMMAND_BYTES).describe('As for bash.'),
    cwd: z.string().min(1).max(4_095).optional().describe('Absolute; without it /workspace.'),
    env: z
      .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/), z.string().max(MAX_COMMAND_BYTES))
      .optional()
      .describe("Beside the session's own."),
    stdin: z
      .boolean()
      .default(false)
      .describe('Whether its input stays open, for `…/stdin`; otherwise it is at its end.'),
  }),
  answers: { 201: { description: 'It runs', content: { [JSON_MEDIA_TYPE]: ProcessSchema } } },
  errors: [...TRANSFER_ERRORS, 'too_many_programs', 'program_not_started'],
  handle: async (exchange, { params, body }) => {
    const session = await ownSession(exchange, params.session_id);
    const started = await askProcess(session, ProcessSchema, {
      operation: 'process_start',
      process_id: newId('prc'),
      command: body.command,
      cwd: body.cwd ?? null,
      environment: body.env ?? {},
      ...(body.stdin ? { stdin: true } : {}),
    });
    return reply(201, started);
  },
});

const listProcesses = defineRoute({
  method: 'GET',
  path: PATH,
  operationId: 'listProcesses',
  summary: 'The background processes of a session, those that have ended among them',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  answers: { 200: { description: 'All that are known', content: { [JSON_MEDIA_TYPE]: ProcessListSchema } } },
  errors: TRANSFER_ERRORS,
  handle: async (exchange, { params }) => {
    const session = await ownSession(exchange, params.session_id);
    return reply(200, await askProcess(session, ProcessListSchema, { operation: 'process_list' }));
  },
});

const getProcess = defineRoute({
  method: 'GET',
  path: `${PATH}/{process_id}`,
  operationId: 'getProcess',
  summary: 'One background process, running or ended',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  answers: { 200: { description: 'The process', content: { [JSON_MEDIA_TYPE]: ProcessSchema } } },
  errors: TRANSFER_ERRORS,
  handle: async (exchange, { params }) => {
    const session = await ownSession(exchange, params.session_id);
    const process_id = processIdOf(params.process_id);
    return reply(200, await askProcess(session, ProcessSchema, { operation: 'process_read', process_id }));
  },
});

const readLogs = defineRoute({
  method: 'GET',
  path: `${PATH}/{process_id}/logs`,
  operationId: 'readProcessLogs',
  summary:
    'What a background process wrote: as JSON up to now, or with `Accept: text/event-stream` as it comes, until the process has ended',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  query: z.strictObject({
    after: z.coerce
      .number()
      .int()
      .min(0)
      .optional()
      .describe('Position to go on from: `next_after`, or the id of an event.'),
    stream: ProcessStreamSchema.optional().describe('Of this stream only.'),
  }),
  headers: {
    Accept: '`text/event-stream` for events as they come.',
    'Last-Event-ID': 'The same as `after`.',
  },
  answers: {
    200: {
      description: 'What is kept; what is not any more is named as a `gap`',
      content: { [JSON_MEDIA_TYPE]: LogsSchema, [EVENT_STREAM_MEDIA_TYPE]: StreamTextSchema },
    },
  },
  errors: TRANSFER_ERRORS,
  handle: async (exchange, { params, query }) => {
    const { headers } = exchange.request;
    const session = await ownSession(exchange, params.session_id);
    const follow = headers.get('Accept')?.includes(EVENT_STREAM_MEDIA_TYPE) === true;
    const after = query.after ?? lastEventIdOf(headers);
    const about = { process_id: processIdOf(params.process_id), after, stream: query.stream ?? null };
    if (!follow) return reply(200, await processLogs(session, about));
    const { body } = await readTransfer(session, { operation: 'process_logs', ...about, follow });
    return new Response(body, {
      headers: { 'Content-Type': EVENT_STREAM_MEDIA_TYPE, 'X-Accel-Buffering': 'no' },
    });
  },
});

function lastEventIdOf(headers: Headers): number | null {
  const id = headers.get('Last-Event-ID');
  return id !== null && /^\d{1,15}$/.test(id) ? Number(id) : null;
}

const waitForProcess = defineRoute({
  method: 'POST',
  path: `${PATH}/{process_id}/wait`,
  operationId: 'waitForProcess',
  summary:
    'Wait until a background process has ended, has written a line with some text in it, or something in the sandbox takes connections on a port',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  body: z.strictObject({
    exit: z
      .literal(true)
      .optional()
      .describe('Until it has ended; this is what is waited for without others.'),
    line: z
      .string()
      .min(1)
      .max(1_024)
      .optional()
      .describe('Until a line of either stream has this text in it.'),
    after: z.int().min(0).optional().describe('With `line`: only what was written after this position.'),
    port: z
      .int()
      .min(1)
      .max(65_535)
      .optional()
      .describe('Until this TCP port of the loopback address answers.'),
    timeout_ms: z.int().min(1).max(MAX_WAIT_MS).default(30_000),
  }),
  answers: {
    200: {
      description: 'It came, or the time is over, or the process is: `reached` says so',
      content: { [JSON_MEDIA_TYPE]: WaitedSchema },
    },
  },
  errors: TRANSFER_ERRORS,
  handle: async (exchange, { params, body }) => {
    const session = await ownSession(exchange, params.session_id);
    const { timeout_ms, ...conditions } = body;
    const process_id = processIdOf(params.process_id);
    const until = untilOf(conditions);
    return reply(
      200,
      await askProcess(session, WaitedSchema, { operation: 'process_wait', process_id, until, timeout_ms }),
    );
  },
});

function untilOf(conditions: {
  exit?: true | undefined;
  line?: string | undefined;
  after?: number | undefined;
  port?: number | undefined;
}): WaitUntil {
  const { exit, line, after, port } = conditions;
  const named = [exit, line, port].filter((condition) => condition !== undefined).length;
  if (named > 1) throw invalid([{ path: 'body', expected: 'one of exit, line and port' }]);
  if (after !== undefined && line === undefined)
    throw invalid([{ path: 'body.after', expected: 'only with line' }]);
  if (line !== undefined) return { kind: 'line', text: line, after: after ?? 0 };
  return port === undefined ? { kind: 'exit' } : { kind: 'port', port };
}

const writeProcess = defineRoute({
  method: 'POST',
  path: `${PATH}/{process_id}/stdin`,
  operationId: 'writeProcessStdin',
  summary: 'Write to the input of a background process that was started with `stdin`',
  access: { kind: 'tenant', scopes: ['tools:shell'] },
  query: StdinQuerySchema,
  raw: rawStdin(MAX_PROCESS_INPUT_BYTES),
  answers: {
    200: { description: 'The bytes are on their way', content: { [JSON_MEDIA_TYPE]: ProcessSchema } },
  },
  errors: [...TRANSFER_ERRORS, 'execution_not_running', 'queue_full', 'payload_too_large'],
  handle: async (exchange, { params, query, raw }) => {
    const session = await ownSession(exchange, params.session_id);
    const { bytes, eof } = stdinOf(raw, query, MAX_PROCESS_INPUT_BYTES);
    return reply(
      200,
      await askProcess(session, ProcessSchema, {
        operation: 'process_input',
        process_id: processIdOf(params.process_id),
        bytes: toBase64(bytes),
        end: eof,
      }),
    );
  },
});

const stopProcess = defineRoute({
  method: 'DELETE',
  path: `${PATH}/{process_id}`,
  operationId: 'stopProcess',
  summary:
    'End a background process and all that it started: TERM, and KILL for what is left after the grace; it stays in the list as it ended',
  access: { kind: 'tenant', scopes: ['tools:shell'] },
  query: z.strictObject({
    grace_ms: z.coerce
      .number()
      .int()
      .min(0)
      .max(MAX_STOP_GRACE_MS)
      .default(5_000)
      .describe('Between TERM and KILL; 0 for KILL at once.'),
  }),
  answers: { 200: { description: 'It has ended', content: { [JSON_MEDIA_TYPE]: ProcessSchema } } },
  errors: TRANSFER_ERRORS,
  handle: async (exchange, { params, query }) => {
    const session = await ownSession(exchange, params.session_id);
    const process_id = processIdOf(params.process_id);
    const { grace_ms } = query;
    return reply(
      200,
      await askProcess(session, ProcessSchema, { operation: 'process_stop', process_id, grace_ms }),
    );
  },
});

function processIdOf(text: string): string {
  if (ProcessIdSchema.safeParse(text).success) return text;
  throw notFound('no such process, or not yours');
}

export const processRoutes = [
  startProcess,
  listProcesses,
  getProcess,
  readLogs,
  waitForProcess,
  writeProcess,
  stopProcess,
];
