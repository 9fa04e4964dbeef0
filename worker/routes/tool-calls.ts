/** An assistant's message in, the messages to append out: calls run in order, whatever went wrong is in its message. */
import * as z from 'zod';
import { type Outcome, success } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { ExecutionIdSchema } from '../../shared/ids.ts';
import { ExecutionStatusSchema } from '../../shared/lifecycle.ts';
import { DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS } from '../../shared/limits.ts';
import { type Idempotency, idempotencyOf } from '../middleware/idempotency.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import {
  DEFAULT_MAX_CHARACTERS,
  executionText,
  MAX_MAX_CHARACTERS,
  MIN_MAX_CHARACTERS,
} from '../rendering/execution-text.ts';
import { failureText } from '../rendering/failure-text.ts';
import { imagesOf } from '../rendering/images.ts';
import { MIN_MAX_TOKENS, withinTokens } from '../rendering/token-budget.ts';
import { type CallAnswer, messagesOf } from '../tool-calls/messages.ts';
import { type CheckedCall, type PreparedCall, prepareCalls } from '../tool-calls/prepare.ts';
import { AssistantMessageSchema, requestedCalls } from '../tool-calls/requested-calls.ts';
import { approvedOutcome } from './approved-call.ts';
import { acceptCall, attendedCall, awaitCall } from './attended-call.ts';
import { EXECUTE_ERRORS, TOOL_SCOPES } from './execute.ts';
import { SAFE } from './object-calls.ts';
import { type OwnSession, ownSession } from './own-session.ts';
import { reply } from './reply.ts';
import { defineRoute, type Exchange } from './route.ts';
import { IDEMPOTENCY_HEADER_DOC } from './sessions.ts';

const OptionsSchema = z.object({
  max_characters: z
    .int()
    .min(MIN_MAX_CHARACTERS)
    .max(MAX_MAX_CHARACTERS)
    .optional()
    .describe(
      `Longest content of one result: its head and tail are kept. ${DEFAULT_MAX_CHARACTERS} unless \`max_tokens\` is given.`,
    ),
  max_tokens: z
    .int()
    .min(MIN_MAX_TOKENS)
    .max(MAX_MAX_CHARACTERS)
    .optional()
    .describe('The same in tokens, by an estimate that is rather too high.'),
  timeout_ms: z.int().min(1).max(MAX_TIMEOUT_MS).default(DEFAULT_TIMEOUT_MS).describe('Of each call.'),
});

/** The message itself, or the message in `message`; the options stand beside it. */
const ToolCallsSchema = AssistantMessageSchema.extend({
  message: AssistantMessageSchema.optional(),
  ...OptionsSchema.shape,
});
type ToolCalls = z.infer<typeof ToolCallsSchema>;

const AnsweredSchema = z.object({
  format: z.enum(['openai', 'openai-responses', 'anthropic']),
  messages: z
    .array(z.record(z.string(), z.unknown()))
    .describe('To append to the conversation, in this order.'),
  calls: z
    .array(
      z.object({
        id: z.string(),
        execution_id: ExecutionIdSchema.nullable(),
        status: ExecutionStatusSchema.nullable(),
      }),
    )
    .describe('What ran for each call; null where nothing did.'),
});

export const toolCalls = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/tool_calls',
  operationId: 'toolCalls',
  summary: "Run the calls of a model's message and get the messages to append",
  access: { kind: 'tenant', anyScope: TOOL_SCOPES },
  headers: IDEMPOTENCY_HEADER_DOC,
  body: ToolCallsSchema,
  answers: { 200: { description: 'The messages', content: { 'application/json': AnsweredSchema } } },
  errors: ['not_found', ...EXECUTE_ERRORS],
  handle: async (exchange, { params, body, raw }) => {
    const session = await ownSession(exchange, params.session_id);
    const { format, calls } = requestedCalls(body.message ?? body, body.message ? 'body.message' : 'body');
    const prepared = await prepareCalls(exchange, calls, body.timeout_ms);
    const keyOf = (index: number) =>
      idempotencyOf({
        header: exchange.request.headers.get('Idempotency-Key'),
        route: `POST /v1/sessions/${session.sessionId}/tool_calls/${index}`,
        subject: exchange.principal.subject,
        body: raw.bytes,
      });
    const outcomes = await runCalls({ exchange, session, prepared, body, keyOf });
    const answers = outcomes.map((outcome, index) => answerOf(prepared[index]?.id ?? '', outcome, body));
    return reply(200, {
      format,
      messages: messagesOf(format, answers),
      calls: outcomes.map((outcome, index) => ({
        id: prepared[index]?.id ?? '',
        execution_id: outcome.ok ? outcome.value.execution_id : null,
        status: outcome.ok ? outcome.value.status : null,
      })),
    });
  },
});

/** Resolves at its end. */
type TakenCall = () => Promise<Outcome<Execution>>;

interface Run {
  exchange: Exchange<'tenant'>;
  session: OwnSession;
  prepared: readonly PreparedCall[];
  body: ToolCalls;
  keyOf: (index: number) => Promise<Idempotency | null>;
}

/**
 * They run in this order. Those of one tool are accepted one after the other before any is waited for, so there are no
 * gaps between them; another tool would run beside them, so it comes when they have ended.
 */
async function runCalls(run: Run): Promise<Outcome<Execution>[]> {
  const { session, prepared } = run;
  if (!prepared.some(({ call }) => call.ok)) {
    // Somebody else's session answers like a missing one also where nothing would run.
    unwrap(await session.call((stub) => stub.describe(session.caller), SAFE));
  }
  const accepted: Outcome<TakenCall>[] = [];
  let before: { tool: string; calls: TakenCall[] } = { tool: '', calls: [] };
  for (const [index, { call }] of prepared.entries()) {
    const tool = call.ok && call.value.performance === undefined ? call.value.call.tool_name : before.tool;
    if (tool !== before.tool) {
      await Promise.all(before.calls.map((end) => end()));
      before = { tool, calls: [] };
    }
    const taken = call.ok ? await accept(run, index, call.value) : call;
    if (taken.ok) before.calls.push(taken.value);
    accepted.push(taken);
  }
  return Promise.all(accepted.map(async (call) => (call.ok ? call.value() : call)));
}

async function accept(
  { exchange, session, keyOf }: Run,
  index: number,
  call: CheckedCall,
): Promise<Outcome<TakenCall>> {
  const { toApprove } = call;
  if (toApprove !== undefined) return success(once(() => approvedOutcome(exchange, session, toApprove)));
  const attended = attendedCall(exchange, session, {
    body: call.call,
    idempotency: await keyOf(index),
    resolved: call,
  });
  const outcome = await acceptCall(attended);
  if (outcome.ok) return success(once(() => awaitCall(attended)));
  if (ENDS_THE_REQUEST.has(outcome.code)) throw new Refusal(outcome);
  return outcome;
}

/** However often its end is asked for. */
function once(end: TakenCall): TakenCall {
  let ending: ReturnType<TakenCall> | undefined;
  return () => {
    ending ??= end();
    return ending;
  };
}

/** Failures that are the client's to mend: the model cannot. */
const ENDS_THE_REQUEST: ReadonlySet<string> = new Set([
  'not_found',
  'session_deleted',
  'session_not_running',
  'session_failed',
  'idempotency_conflict',
  'idempotency_in_progress',
]);

function answerOf(id: string, outcome: Outcome<Execution>, budget: ToolCalls): CallAnswer {
  if (!outcome.ok) return { id, text: failureText(outcome), images: [], isError: true };
  const execution = outcome.value;
  return {
    id,
    text: textWithin(budget, execution),
    images: imagesOf(execution.results),
    isError: execution.status !== 'succeeded',
  };
}

function textWithin({ max_characters, max_tokens }: ToolCalls, execution: Execution): string {
  if (max_tokens === undefined) return executionText(execution, max_characters ?? DEFAULT_MAX_CHARACTERS);
  const most = max_characters ?? MAX_MAX_CHARACTERS;
  return withinTokens(max_tokens, (characters) => executionText(execution, Math.min(characters, most)));
}
