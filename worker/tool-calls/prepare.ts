/** From the calls that a model wants to those that may run, and for each other the reason why it may not. */
import { CODE_TOOL_NAME, CodeArgumentsSchema } from '../../shared/code-mode.ts';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { ToolNameSchema } from '../../shared/tool.ts';
import { exportedNames, FUNCTION_NAMES } from '../formats/names.ts';
import { withoutAbsent } from '../formats/nulls.ts';
import { checkValue } from '../middleware/body.ts';
import { Refusal } from '../middleware/refusal.ts';
import type { StoredTool } from '../objects/catalogue/port.ts';
import { type AskedProgram, askedProgram, CODE_TOOL, programLanguages } from '../programs/code-tool.ts';
import { BUILT_IN_ENTRIES } from '../tools/catalogue.ts';
import { checkCall, toolNotFound } from '../tools/check-call.ts';
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import type { ResolveContext } from '../tools/performance.ts';
import { mayBeCalledBy, type ToolCaller } from '../tools/policy.ts';
import { type ResolvedCall, resolveStored, storedTools } from '../tools/resolve-call.ts';
import { callArguments } from './call-arguments.ts';
import type { RequestedCall } from './requested-calls.ts';

export type CheckedCall = ResolvedCall<{
  tool_name: string;
  arguments: Record<string, unknown>;
  timeout_ms: number;
}>;

/** A call of the tool `code`. */
export interface CheckedProgram {
  program: AskedProgram;
  timeoutMs: number;
}

export function isProgram(call: CheckedCall | CheckedProgram): call is CheckedProgram {
  return 'program' in call;
}

export interface PreparedCall {
  id: string;
  caller: RequestedCall['caller'];
  call: Outcome<CheckedCall | CheckedProgram>;
}

export async function prepareCalls(
  context: ResolveContext,
  calls: readonly RequestedCall[],
  timeoutMs: number,
): Promise<PreparedCall[]> {
  const builtIn = new Map<string, ToolDefinition>(BUILT_IN_ENTRIES.map((tool) => [tool.name, tool]));
  // A legal name is exported as it is, so no two tools meet here. Models have been given either name.
  const names = [...new Set(calls.map(({ name }) => name))].filter(
    (name) => name !== '' && name !== CODE_TOOL_NAME && !builtIn.has(name),
  );
  const byExportedName = await storedTools(context, names, 'function_name');
  const exported = await exportedNames(
    byExportedName.map(({ tool }) => tool.name),
    FUNCTION_NAMES,
  );
  const isExported = new Set(exported.values());
  const others = names.filter((name) => !isExported.has(name));
  const byName = await storedTools(context, others, 'name');
  const stored = new Map([
    ...byExportedName.map((one) => [exported.get(one.tool.name) ?? '', one] as const),
    ...byName.map(named),
  ]);
  return calls.map((requested) => {
    const { id, caller } = requested;
    if (requested.name === CODE_TOOL_NAME) {
      return { id, caller, call: preparedProgram(context, requested, timeoutMs) };
    }
    const found = stored.get(requested.name);
    const schema = builtIn.get(requested.name)?.inputSchema ?? found?.tool.input_schema;
    return { id, caller, call: prepared(context, { requested, schema, stored: found }, timeoutMs) };
  });
}

function named(one: StoredTool): readonly [string, StoredTool] {
  return [one.tool.name, one];
}

function prepared(
  context: ResolveContext,
  {
    requested,
    schema,
    stored,
  }: { requested: RequestedCall; schema: JsonSchema | undefined; stored: StoredTool | undefined },
  timeoutMs: number,
): Outcome<CheckedCall> {
  const given = schema === undefined ? success({}) : callArguments(requested.arguments);
  if (!given.ok) return given;
  const args = schema === undefined ? given.value : withoutAbsent(given.value, schema);
  const call = { tool_name: requested.name, arguments: args, timeout_ms: timeoutMs };
  const place = { root: '', caller: callerOf(requested) };
  return refusedAsValue(() =>
    stored === undefined && ToolNameSchema.safeParse(requested.name).success
      ? { ...checkCall(context, call, place), calledAs: null, finish: (execution: Execution) => execution }
      : resolveStored(context, { call, stored }, { ...place, approval: 'asked' }),
  );
}

function callerOf({ caller }: RequestedCall): ToolCaller {
  return (caller?.type ?? 'direct') === 'direct' ? 'direct' : 'code';
}

function preparedProgram(
  context: ResolveContext,
  requested: RequestedCall,
  timeoutMs: number,
): Outcome<CheckedProgram> {
  const { inputSchema, allowedCallers } = CODE_TOOL;
  // Who may run none is told what anybody is told of a tool that is not there.
  if (programLanguages(context.principal).length === 0) {
    return toolNotFound(context.principal, CODE_TOOL_NAME, '').failure;
  }
  if (!mayBeCalledBy(callerOf(requested), allowedCallers)) {
    return failure('tool_unavailable', `${CODE_TOOL_NAME} is not called by programs`);
  }
  const given = callArguments(requested.arguments);
  if (!given.ok) return given;
  return refusedAsValue(() => {
    const args = checkValue(withoutAbsent(given.value, inputSchema), CodeArgumentsSchema, 'arguments');
    return { program: askedProgram(args, 'arguments'), timeoutMs };
  });
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
