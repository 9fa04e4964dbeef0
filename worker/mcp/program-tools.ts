/** Programs over MCP: one call runs the program until it ends or asks, another answers what it asks. */
import type { CallToolResult } from '@modelcontextprotocol/server';
import * as z from 'zod';
import {
  CreateProgramSchema,
  PendingCallSchema,
  type Program,
  ProgramIdSchema,
  ProgramSchema,
  ToolResultsSchema,
} from '../../shared/code-mode.ts';
import { utf8 } from '../../shared/encoding.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { mcpTool } from '../formats/mcp.ts';
import { withoutAbsent } from '../formats/nulls.ts';
import { checkValue } from '../middleware/body.ts';
import { idempotencyOf } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { beginProgram } from '../routes/begin-program.ts';
import { SAFE } from '../routes/object-calls.ts';
import { type OwnSession, ownSession } from '../routes/own-session.ts';
import { IdempotencyKeySchema } from './call-options.ts';
import { followOutput } from './follow-output.ts';
import { ExecutionContentSchema, executionResult } from './result.ts';
import type { McpCallContext, McpServerTool } from './tool.ts';
import { jsonSchemaOf } from './tool-schema.ts';

const SessionIdArgument = z.string().max(64).describe('The session to run in, from create_session.');
const RunArgumentsSchema = CreateProgramSchema.pick({
  language: true,
  code: true,
  tools: true,
  limits: true,
}).extend({
  session_id: SessionIdArgument,
  idempotency_key: IdempotencyKeySchema.optional(),
});
const AnswerArgumentsSchema = ToolResultsSchema.pick({ results: true }).extend({
  session_id: SessionIdArgument,
  program_id: ProgramIdSchema.describe('From run_program.'),
});
const ProgramContentSchema = ProgramSchema.pick({ program_id: true, status: true, used: true }).extend({
  pending: z.array(PendingCallSchema).describe('To be answered with answer_program.'),
  execution: ExecutionContentSchema,
});

const runInput = jsonSchemaOf(RunArgumentsSchema, 'input');
const answerInput = jsonSchemaOf(AnswerArgumentsSchema, 'input');
const output = { ...jsonSchemaOf(ProgramContentSchema, 'output'), type: 'object' as const };

const runProgram: McpServerTool = {
  listed: {
    ...mcpTool(
      {
        name: 'run_program',
        title: 'Run a program that calls tools',
        description:
          'Run Python or JavaScript in a session; your registered tools are functions in it, for example tools.weather.get(city="Oslo") or await tools.weather.get({city: "Oslo"}). Where the result has pending calls, execute them and give their results with answer_program.',
        category: 'code',
        inputSchema: runInput,
        effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
      },
      'run_program',
    ),
    outputSchema: output,
  },
  call: async (given, context) => {
    const args = checkValue(withoutAbsent(given, runInput), RunArgumentsSchema, 'arguments');
    const { session_id, idempotency_key, ...request } = args;
    const { exchange } = context;
    const session = await ownSession(exchange, session_id);
    const idempotency = await idempotencyOf({
      header: idempotency_key ?? null,
      route: `MCP run_program ${session_id}`,
      subject: exchange.principal.subject,
      body: utf8(JSON.stringify(request)),
    });
    const begun = unwrap(await beginProgram(exchange, session, { request, idempotency }));
    return attended(session, begun.program_id, context);
  },
};

const answerProgram: McpServerTool = {
  listed: {
    ...mcpTool(
      {
        name: 'answer_program',
        title: 'Answer calls of a program',
        description:
          'Give the results of pending calls of a program, in any order: each has content (text), structured (data) or error. The program goes on, and the answer is like that of run_program.',
        category: 'code',
        inputSchema: answerInput,
        effects: { readOnly: false, destructive: true, idempotent: true, openWorld: true },
      },
      'answer_program',
    ),
    outputSchema: output,
  },
  call: async (given, context) => {
    const args = checkValue(given, AnswerArgumentsSchema, 'arguments');
    const session = await ownSession(context.exchange, args.session_id);
    const { program_id, results } = args;
    unwrap(await session.call((stub) => stub.answerCalls(session.caller, program_id, results), SAFE));
    return attended(session, program_id, context);
  },
};

export const programTools: readonly McpServerTool[] = [answerProgram, runProgram];

/** A client that gives the call up stops the program. */
async function attended(
  session: OwnSession,
  programId: string,
  { signal, onProgress, onTaken }: Pick<McpCallContext, 'signal' | 'onProgress' | 'onTaken'>,
): Promise<CallToolResult> {
  onTaken?.({
    sessionId: session.sessionId,
    executionId: programId,
    tool: null,
    form: 'program',
    ownSession: false,
    atEdge: false,
  });
  const followed = onProgress === undefined ? undefined : followOutput(session, programId, onProgress);
  const stop = () => {
    session.call((stub) => stub.interrupt(session.caller, programId), SAFE).catch(() => undefined);
  };
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();
  try {
    return programResult(
      unwrap(await session.call((stub) => stub.waitProgram(session.caller, programId), SAFE)),
    );
  } finally {
    signal.removeEventListener('abort', stop);
    followed?.close();
  }
}

export function programResult({
  program_id,
  status,
  pending,
  calls,
  used,
  execution,
}: Program): CallToolResult {
  const { content, structuredContent, isError } = executionResult(execution, { sessionEnded: false });
  const text = waitingText(program_id, pending, calls);
  return {
    content: isTerminal(status) ? content : [{ type: 'text', text }],
    structuredContent: { program_id, status, pending, used, execution: structuredContent },
    isError: isTerminal(status) && isError === true,
  };
}

function waitingText(id: string, pending: Program['pending'], calls: Program['calls']): string {
  const asks = pending.map((call) => JSON.stringify(call)).join('\n');
  if (pending.length > 0) {
    return `program ${id} waits for ${pending.length} of your tools; answer with answer_program:\n${asks}`;
  }
  const toAllow = calls.filter(({ status }) => status === 'awaiting_approval').length;
  return `program ${id} waits for ${toAllow} approvals; it goes on by itself when they are decided`;
}
