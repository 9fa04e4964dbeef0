/** The caller's tools over MCP: each runs in a session that exists, or in one of its own. */
import * as z from 'zod';
import { utf8 } from '../../shared/encoding.ts';
import type { Outcome } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { CreateSessionSchema } from '../../shared/session.ts';
import { without } from '../formats/json-schema.ts';
import { mcpTool } from '../formats/mcp.ts';
import { withoutAbsent } from '../formats/nulls.ts';
import { type Idempotency, idempotencyOf } from '../middleware/idempotency.ts';
import { attendedCall, stopCall } from '../routes/attended-call.ts';
import { UNSAFE } from '../routes/object-calls.ts';
import { type OwnSession, ownSession } from '../routes/own-session.ts';
import { callInOwnSession } from '../routes/own-session-call.ts';
import { checkCall } from '../tools/check-call.ts';
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import { attend } from './attend.ts';
import { type CallOptions, splitCall, withCallOptions } from './call-options.ts';
import { ExecutionContentSchema, executionResult, failureResult } from './result.ts';
import type { McpCallContext, McpServerTool } from './tool.ts';

const outputSchema: JsonSchema & { type: 'object' } = {
  ...without(z.toJSONSchema(ExecutionContentSchema), ['$schema']),
  type: 'object',
};

export function executeTool(
  tool: ToolDefinition,
  name: string,
  { mayCreate }: { mayCreate: boolean },
): McpServerTool {
  const listed = mcpTool(tool, name);
  return {
    listed: {
      ...listed,
      inputSchema: withCallOptions(listed.inputSchema, { needsSession: !mayCreate }),
      outputSchema,
    },
    call: async (given, context) => {
      const { args, options } = splitCall(given, tool.inputSchema);
      const outcome = await run(tool, { args, options }, context);
      if (!outcome.ok) return failureResult(outcome);
      return executionResult(outcome.value, { sessionEnded: options.session_id === undefined });
    },
  };
}

async function run(
  tool: ToolDefinition,
  { args, options }: { args: Record<string, unknown>; options: CallOptions },
  context: McpCallContext,
): Promise<Outcome<Execution>> {
  const { exchange } = context;
  const { session_id, timeout_ms } = options;
  const call = checkCall(
    exchange,
    { tool_name: tool.name, arguments: withoutAbsent(args, tool.inputSchema) },
    { root: '', scopes: session_id === undefined ? ['sessions:write'] : [] },
  );
  const body = { ...call, ...(timeout_ms === undefined ? {} : { timeout_ms }) };
  const idempotency = await keyOf(options, body, context);
  const attendIn = (session: OwnSession, stop: 'call' | 'session') => {
    const attended = attendedCall(exchange, session, { body, idempotency });
    return attend(attended, context, () =>
      stop === 'call' ? stopCall(attended) : session.call((stub) => stub.destroy(session.caller), UNSAFE),
    );
  };
  if (session_id !== undefined) return attendIn(await ownSession(exchange, session_id), 'call');
  const place = CreateSessionSchema.parse({});
  return callInOwnSession(exchange, { place, idempotency }, (session) => attendIn(session, 'session'));
}

function keyOf(
  { idempotency_key, session_id }: CallOptions,
  body: object,
  { exchange }: McpCallContext,
): Promise<Idempotency | null> {
  return idempotencyOf({
    header: idempotency_key ?? null,
    route: `MCP tools/call ${session_id ?? ''}`,
    subject: exchange.principal.subject,
    body: utf8(JSON.stringify(body)),
  });
}
