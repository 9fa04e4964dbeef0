/** The caller's tools over MCP: each runs in a session that exists, or in one of its own. */
import type { CallToolResult } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { utf8 } from '../../shared/encoding.ts';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { CreateSessionSchema } from '../../shared/session.ts';
import { approvedOutcome, askApproval } from '../calls/approved-call.ts';
import { attendedCall, stopCall } from '../calls/attended-call.ts';
import { loneCall } from '../calls/lone-call.ts';
import { type OwnSession, ownSession } from '../calls/own-session.ts';
import { callInOwnSession } from '../calls/own-session-call.ts';
import { without } from '../formats/json-schema.ts';
import { mcpTool } from '../formats/mcp.ts';
import { withoutAbsent } from '../formats/nulls.ts';
import { type Idempotency, idempotencyOf } from '../middleware/idempotency.ts';
import { UNSAFE } from '../objects/object-calls.ts';
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import type { OnEdgeProgress } from '../tools/edge-execution.ts';
import { resolveCall } from '../tools/resolve-call.ts';
import { attend } from './attend.ts';
import { type CallOptions, splitCall, withCallOptions } from './call-options.ts';
import { progressOfServer } from './progress.ts';
import {
  callResult,
  ExecutionContentSchema,
  failureResult,
  formOf,
  ownOutput,
  type ResultForm,
} from './result.ts';
import type { McpCallContext, McpServerTool } from './tool.ts';

const outputSchema: JsonSchema & { type: 'object' } = {
  ...without(z.toJSONSchema(ExecutionContentSchema), ['$schema']),
  type: 'object',
};

/** The call that one under a name of MCP's own stands for. */
type Target = (args: Record<string, unknown>) => { name: string; args: Record<string, unknown> };

const itself =
  (name: string): Target =>
  (args) => ({ name, args });

export function executeTool(
  tool: ToolDefinition,
  name: string,
  { mayCreate, target = itself(tool.name) }: { mayCreate: boolean; target?: Target },
): McpServerTool {
  const listed = mcpTool(tool, name);
  return {
    listed: {
      ...listed,
      inputSchema: withCallOptions(listed.inputSchema, { needsSession: !mayCreate }),
      outputSchema: ownOutput(tool) ?? outputSchema,
    },
    call: async (given, context) => {
      const { args, options } = splitCall(given, tool.inputSchema);
      const called = target(withoutAbsent(args, tool.inputSchema));
      const call = { args: called.args, options };
      const form = formOf(tool);
      return resultOf(await run(called.name, { ...call, form }, context), { form, options, context });
    },
  };
}

/** A tool that is not listed under a name of its own here. */
export async function callByName(
  name: string,
  call: { args: Record<string, unknown>; options: CallOptions },
  context: McpCallContext,
): Promise<CallToolResult> {
  const form = 'execution';
  const { options } = call;
  return resultOf(await run(name, { ...call, form }, context), { form, options, context });
}

/** Of a call that goes on: the task that it has become. */
function resultOf(
  outcome: Outcome<Execution>,
  about: { form: ResultForm; options: CallOptions; context: McpCallContext },
): CallToolResult | Promise<CallToolResult> {
  if (!outcome.ok) return failureResult(outcome);
  const { form, options, context } = about;
  const isOwnSession = options.session_id === undefined;
  if (context.tasks !== undefined && !isTerminal(outcome.value.status)) {
    return context.tasks.created(outcome.value, { isOwnSession, form });
  }
  return callResult(outcome.value, { form, ownSession: isOwnSession });
}

/** The call as it stands at its end or, where it may become a task, before. */
async function run(
  name: string,
  { args, options, form }: { args: Record<string, unknown>; options: CallOptions; form: ResultForm },
  context: McpCallContext,
): Promise<Outcome<Execution>> {
  const { exchange } = context;
  const { session_id, timeout_ms } = options;
  const resolved = await resolveCall(
    exchange,
    { tool_name: name, arguments: args, ...(timeout_ms === undefined ? {} : { timeout_ms }) },
    { root: '', scopes: session_id === undefined ? ['sessions:write'] : [], approval: 'asked' },
  );
  const body = resolved.call;
  const { toApprove } = resolved;
  const { onProgress: report } = context;
  const onProgress: OnEdgeProgress | undefined =
    report === undefined ? undefined : (progress) => report(progressOfServer(progress));
  if (toApprove !== undefined && session_id === undefined) {
    return failure('approval_required', `${name} needs an approval for each call: name a session_id`);
  }
  const idempotency = await keyOf(options, { name, args, timeout_ms }, context);
  if (toApprove !== undefined && session_id !== undefined) {
    const session = await ownSession(exchange, session_id);
    return context.tasks === undefined
      ? approvedOutcome(exchange, session, toApprove, onProgress)
      : askApproval(exchange, session, { call: toApprove, idempotency, claims: false });
  }
  if (session_id === undefined && resolved.performance !== undefined) {
    const { performance, finish } = resolved;
    const call = await loneCall(exchange, { performance, finish, idempotency });
    return success(await call.run(context.signal, onProgress));
  }
  const attendIn = (session: OwnSession, stop: 'call' | 'session') => {
    const attended = attendedCall(exchange, session, {
      body,
      idempotency,
      resolved,
      stream: context.onProgress !== undefined,
      onProgress,
      ephemeral: stop === 'session',
      isFoundAgain: context.tasks !== undefined,
    });
    const { signal, onTaken, tasks } = context;
    const hear = (execution: Execution) =>
      onTaken?.({
        sessionId: session.sessionId,
        executionId: execution.execution_id,
        tool: { name, digest: resolved.identity?.digest ?? null },
        form,
        ownSession: stop === 'session',
        atEdge: attended.edge !== undefined,
      });
    const attendance = {
      signal,
      onProgress: report,
      onTaken: onTaken === undefined ? undefined : hear,
      tasks,
    };
    return attend(attended, attendance, () =>
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
