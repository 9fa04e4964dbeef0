/** From the calls that a model wants to those that may run, and for each other the reason why it may not. */
import { type Failure, type Outcome, success } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { ToolNameSchema } from '../../shared/tool.ts';
import { exportedNames, FUNCTION_NAMES } from '../formats/names.ts';
import { withoutAbsent } from '../formats/nulls.ts';
import { Refusal } from '../middleware/refusal.ts';
import type { StoredTool } from '../objects/catalogue/port.ts';
import { BUILT_IN_ENTRIES } from '../tools/catalogue.ts';
import { checkCall } from '../tools/check-call.ts';
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import type { ResolveContext } from '../tools/performance.ts';
import { type ResolvedCall, resolveStored, storedTools } from '../tools/resolve-call.ts';
import { callArguments } from './call-arguments.ts';
import type { RequestedCall } from './requested-calls.ts';

export type CheckedCall = ResolvedCall<{
  tool_name: string;
  arguments: Record<string, unknown>;
  timeout_ms: number;
}>;

export interface PreparedCall {
  id: string;
  call: Outcome<CheckedCall>;
}

export async function prepareCalls(
  context: ResolveContext,
  calls: readonly RequestedCall[],
  timeoutMs: number,
): Promise<PreparedCall[]> {
  const builtIn = new Map<string, ToolDefinition>(BUILT_IN_ENTRIES.map((tool) => [tool.name, tool]));
  // A legal name is exported as it is, so no two tools meet here. Models have been given either name.
  const names = [...new Set(calls.map(({ name }) => name))].filter(
    (name) => name !== '' && !builtIn.has(name),
  );
  const byExportedName = await storedTools(context, names, 'function_name');
  const byName = await storedTools(context, names, 'name');
  const exported = await exportedNames(
    byExportedName.map(({ tool }) => tool.name),
    FUNCTION_NAMES,
  );
  const stored = new Map([
    ...byExportedName.map((one) => [exported.get(one.tool.name) ?? '', one] as const),
    ...byName.map(named),
  ]);
  return calls.map((requested) => {
    const found = stored.get(requested.name);
    const schema = builtIn.get(requested.name)?.inputSchema ?? found?.tool.input_schema;
    return { id: requested.id, call: prepared(context, { requested, schema, stored: found }, timeoutMs) };
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
  const isDirect = (requested.caller?.type ?? 'direct') === 'direct';
  const place = { root: '', caller: isDirect ? ('direct' as const) : ('code' as const) };
  return refusedAsValue(() =>
    stored === undefined && ToolNameSchema.safeParse(requested.name).success
      ? { ...checkCall(context, call, place), calledAs: null, finish: (execution: Execution) => execution }
      : resolveStored(context, { call, stored }, { ...place, approval: 'asked' }),
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
