/** Programs over MCP: one call runs the program until it ends or asks, another answers what it asks. */
import type { CallToolResult } from '@modelcontextprotocol/server';
import * as z from 'zod';
import {
  CODE_TOOL_NAME,
  CodeArgumentsSchema,
  CreateProgramSchema,
  PendingCallSchema,
  type Program,
  ProgramIdSchema,
  ProgramSchema,
  ToolResultsSchema,
} from '../../shared/code-mode.ts';
import { utf8 } from '../../shared/encoding.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { beginProgram } from '../calls/begin-program.ts';
import { type OwnSession, ownSession } from '../calls/own-session.ts';
import { mcpTool } from '../formats/mcp.ts';
import { withoutAbsent } from '../formats/nulls.ts';
import { checkValue } from '../middleware/body.ts';
import { idempotencyOf } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE } from '../objects/object-calls.ts';
import { askedProgram, CODE_TOOL, codeTool } from '../programs/code-tool.ts';
import { waitingText } from '../rendering/program-text.ts';
import type { ToolDefinition } from '../tools/definition.ts';
import { IdempotencyKeySchema } from './call-options.ts';
import { followOutput } from './follow-output.ts';
import { ExecutionContentSchema, executionResult } from './result.ts';
import type { McpCallContext, McpServerTool } from './tool.ts';
import { jsonSchemaOf } from './tool-schema.ts';

const SessionIdArgument = z.string().max(64).describe('The session to run in, from create_session.');
const RunArgumentsSchema = CodeArgumentsSchema.extend({
  ...CreateProgramSchema.pick({ tools: true, limits: true }).shape,
  session_id: SessionIdArgument,
  idempotency_key: IdempotencyKeySchema.optional(),
});
const AnswerArgumentsSchema = ToolResultsSchema.pick({ results: true }).extend({
  session_id: SessionIdArgument,
  program_id: ProgramIdSchema.describe('From code.'),
});
const ProgramContentSchema = ProgramSchema.pick({ program_id: true, status: true, used: true }).extend({
  pending: z.array(PendingCallSchema).describe('To be answered with answer_program.'),
  execution: ExecutionContentSchema,
});

const runInput = jsonSchemaOf(RunArgumentsSchema, 'input');
const answerInput = jsonSchemaOf(AnswerArgumentsSchema, 'input');
const output = { ...jsonSchemaOf(ProgramContentSchema, 'output'), type: 'object' as const };

/** Beside what it is to models: here its client answers what it asks. */
const RUN_DEFINITION: ToolDefinition = {
  ...CODE_TOOL,
  description: `${CODE_TOOL.description} Where the result has pending calls, execute them and give their results with answer_program.`,
  inputSchema: runInput,
};

const runProgram: McpServerTool = {
  listed: { ...mcpTool(RUN_DEFINITION, CODE_TOOL_NAME), outputSchema: output },
  listedFor: async (exchange) => {
    const tool = await codeTool(exchange, { base: RUN_DEFINITION, functions: 'description' });
    return { ...mcpTool(tool ?? RUN_DEFINITION, CODE_TOOL_NAME), outputSchema: output };
  },
  call: async (given, context) => {
    const args = checkValue(withoutAbsent(given, runInput), RunArgumentsSchema, 'arguments');
    const { session_id, idempotency_key, tools, limits, ...rest } = args;
    const asked = askedProgram(rest, 'arguments');
    const { exchange } = context;
    const session = await ownSession(exchange, session_id);
    if (asked.programId !== undefined) return attended(session, asked.programId, context);
    const { language, code } = asked;
    const request = { language, code, ...(tools === undefined ? {} : { tools }), limits };
    const idempotency = await idempotencyOf({
      header: idempotency_key ?? null,
      route: `MCP ${CODE_TOOL_NAME} ${session_id}`,
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
          'Give the results of pending calls of a program, in any order: each has content (text), structured (data) or error. The program goes on, and the answer is like that of code.',
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
  const text = waitingText({ program_id, pending, calls }, 'answer with answer_program');
  return {
    content: isTerminal(status) ? content : [{ type: 'text', text }],
    structuredContent: { program_id, status, pending, used, execution: structuredContent },
    isError: isTerminal(status) && isError === true,
  };
}
