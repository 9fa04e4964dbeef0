/** From the calls that a model wants to those that may run, and for each other the reason why it may not. */
import { type Failure, type Outcome, success } from '../../shared/errors.ts';
import { exportedNames, FUNCTION_NAMES } from '../formats/names.ts';
import { withoutAbsent } from '../formats/nulls.ts';
import { Refusal } from '../middleware/refusal.ts';
import { callableTools } from '../tools/catalogue.ts';
import { type CallContext, checkCall } from '../tools/check-call.ts';
import type { ToolDefinition } from '../tools/definition.ts';
import { callArguments } from './call-arguments.ts';
import type { RequestedCall } from './requested-calls.ts';

export interface CheckedCall {
  tool_name: string;
  arguments: Record<string, unknown>;
}

export interface PreparedCall {
  id: string;
  call: Outcome<CheckedCall>;
}

export async function prepareCalls(
  context: CallContext,
  calls: readonly RequestedCall[],
): Promise<PreparedCall[]> {
  const tools = await toolsByExportedName(callableTools(context.principal));
  return calls.map((requested) => ({ id: requested.id, call: prepared(context, requested, tools) }));
}

/** By the name that the model was given. A legal name is exported as it is, so no two tools meet here. */
async function toolsByExportedName(
  tools: readonly ToolDefinition[],
): Promise<ReadonlyMap<string, ToolDefinition>> {
  const names = await exportedNames(
    tools.map((tool) => tool.name),
    FUNCTION_NAMES,
  );
  return new Map(tools.map((tool) => [names.get(tool.name) ?? tool.name, tool]));
}

function prepared(
  context: CallContext,
  requested: RequestedCall,
  tools: ReadonlyMap<string, ToolDefinition>,
): Outcome<CheckedCall> {
  const tool = tools.get(requested.name);
  const given = tool === undefined ? success({}) : callArguments(requested.arguments);
  if (!given.ok) return given;
  const args = tool === undefined ? given.value : withoutAbsent(given.value, tool.inputSchema);
  return refusedAsValue(() =>
    checkCall(context, { tool_name: tool?.name ?? requested.name, arguments: args }, { root: '' }),
  );
}

/** The failure of a refusal: here it is an answer for the model, not for the client. */
export function refusedAsValue<T>(check: () => T): { ok: true; value: T } | Failure {
  try {
    return success(check());
  } catch (error: unknown) {
    if (error instanceof Refusal) return error.failure;
    throw error;
  }
}
