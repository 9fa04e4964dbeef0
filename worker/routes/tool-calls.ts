/** An assistant's message in, the messages to append out: calls run in order, whatever went wrong is in its message. */
import * as z from 'zod';
import { PendingCallSchema, ProgramIdSchema } from '../../shared/code-mode.ts';
import type { Outcome } from '../../shared/errors.ts';
import { ExecutionIdSchema } from '../../shared/ids.ts';
import { ExecutionStatusSchema, isTerminal } from '../../shared/lifecycle.ts';
import { DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS } from '../../shared/limits.ts';
import { ownSession } from '../calls/own-session.ts';
import { idempotencyOf } from '../middleware/idempotency.ts';
import { clip } from '../rendering/clip.ts';
import {
  DEFAULT_MAX_CHARACTERS,
  executionText,
  MAX_MAX_CHARACTERS,
  MIN_MAX_CHARACTERS,
} from '../rendering/execution-text.ts';
import { failureText } from '../rendering/failure-text.ts';
import { imagesOf } from '../rendering/images.ts';
import { waitingText } from '../rendering/program-text.ts';
import { MIN_MAX_TOKENS, withinTokens } from '../rendering/token-budget.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';
import type { CallEnd } from '../tool-calls/calls-run.ts';
import { type CallAnswer, messagesOf } from '../tool-calls/messages.ts';
import { type PreparedCall, prepareCalls } from '../tool-calls/prepare.ts';
import { AssistantMessageSchema, requestedCalls } from '../tool-calls/requested-calls.ts';
import { runCalls } from '../tool-calls/run-calls.ts';
import { EXECUTE_ERRORS, TOOL_SCOPES } from './execute.ts';
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

const PendingSchema = PendingCallSchema.extend({ program_id: ProgramIdSchema });

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
  pending: z
    .array(PendingSchema)
    .describe(
      'Calls of programs that wait for you: answered at `…/programs/{program_id}/tool_results`, then the same request with its `Idempotency-Key` gives the messages anew.',
    ),
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
    const outcomes = await runCalls({ exchange, session, prepared, keyOf });
    const answers = prepared.map((call, index) => answerOf(call, outcomes[index], body));
    return reply(200, {
      format,
      messages: messagesOf(format, answers),
      calls: prepared.map(({ id }, index) => {
        const outcome = outcomes[index];
        const execution = outcome?.ok === true ? outcome.value.execution : undefined;
        return { id, execution_id: execution?.execution_id ?? null, status: execution?.status ?? null };
      }),
      pending: outcomes.flatMap(pendingIn),
    });
  },
});

function pendingIn(outcome: Outcome<CallEnd>): z.infer<typeof PendingSchema>[] {
  const program = outcome.ok ? outcome.value.program : undefined;
  if (program === undefined) return [];
  return program.pending.map((call) => ({ ...call, program_id: program.program_id }));
}

function answerOf(
  { id, caller }: PreparedCall,
  outcome: Outcome<CallEnd> | undefined,
  budget: ToolCalls,
): CallAnswer {
  if (outcome === undefined) throw new Error('every call has an outcome');
  if (!outcome.ok) return { id, caller, text: failureText(outcome), images: [], isError: true };
  const { execution, program } = outcome.value;
  if (program !== undefined && !isTerminal(execution.status)) {
    const text = textOf(budget, (most) => clip(waitingText(program, WAITS_FOR_CLIENT), most));
    return { id, caller, text, images: [], isError: false };
  }
  return {
    id,
    caller,
    text: textOf(budget, (most) => executionText(execution, most)),
    images: imagesOf(execution.results),
    isError: execution.status !== 'succeeded',
  };
}

/** A model cannot answer them; whoever runs its loop does. */
const WAITS_FOR_CLIENT =
  'when they are answered it goes on, and code with this program_id gives what became of it';

function textOf({ max_characters, max_tokens }: ToolCalls, within: (characters: number) => string): string {
  if (max_tokens === undefined) return within(max_characters ?? DEFAULT_MAX_CHARACTERS);
  const most = max_characters ?? MAX_MAX_CHARACTERS;
  return withinTokens(max_tokens, (characters) => within(Math.min(characters, most)));
}
