/** From the call that a caller makes to what runs: which tool, whether this caller may, whether its arguments fit. */
import type { ArgumentConstraint } from '../../shared/argument-constraint.ts';
import { failure } from '../../shared/errors.ts';
import type { Execute, Execution } from '../../shared/execution.ts';
import { DEFAULT_TIMEOUT_MS } from '../../shared/limits.ts';
import type { RegisteredTool } from '../../shared/registered-tool.ts';
import { ToolNameSchema } from '../../shared/tool.ts';
import { requireScopes } from '../middleware/authentication.ts';
import { invalid } from '../middleware/body.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import type { NameKind, StoredTool } from '../objects/catalogue/port.ts';
import { catalogueCalls, SAFE } from '../objects/object-calls.ts';
import type { CalledAs } from '../objects/session/rows/records.ts';
import { compileSchema } from '../schema/compile.ts';
import { type CallPlace, checkCall, requireFit, toolNotFound } from './check-call.ts';
import { codeCell } from './code-cell.ts';
import { requireHeld } from './held-call.ts';
import { knownTools } from './known-tools.ts';
import { type EdgePerformance, httpPerformance, mcpPerformance, type ResolveContext } from './performance.ts';
import { mayBeCalledBy, mayUse, type ToolCaller } from './policy.ts';
import { registeredGuard } from './registered.ts';

type Call = Pick<Execute, 'tool_name' | 'arguments'> & { timeout_ms?: number };

/** Which tool it is, for an approval that is given later: another definition is another tool. */
export interface ToolIdentity {
  name: string;
  version: string;
  digest: string;
}

export interface CallToApprove {
  identity: ToolIdentity;
  arguments: Record<string, unknown>;
  timeoutMs: number;
}

export interface ResolvedCall<C extends Call> {
  /** What the session is asked to run. */
  call: C;
  calledAs: CalledAs | null;
  /** What the arguments of a built-in tool were held to: the host looks at them again. */
  constraints?: ArgumentConstraint[];
  /** It runs here instead: it needs no sandbox. */
  performance?: EdgePerformance;
  /** The result as the tool promises it, or said to be otherwise. */
  finish: (execution: Execution) => Execution;
  /** Of a registered tool. */
  identity?: ToolIdentity;
  /** It must not be made: somebody has to be asked first. Only where `place.approval` says so. */
  toApprove?: CallToApprove | undefined;
}

const asItIs = (execution: Execution) => execution;

export async function resolveCall<C extends Call>(
  context: ResolveContext,
  call: C,
  place: CallPlace = {},
): Promise<ResolvedCall<C>> {
  if (ToolNameSchema.safeParse(call.tool_name).success) {
    return { ...checkCall(context, call, place), calledAs: null, finish: asItIs };
  }
  const [stored] = await storedTools(context, [call.tool_name], 'name');
  return resolveStored(context, { call, stored }, place);
}

/** Tools by any of their names as they were a moment ago, whoever may use them: `resolveStored` decides. */
export async function storedTools(
  { env, principal }: Pick<ResolveContext, 'env' | 'principal'>,
  names: string[],
  kind: NameKind,
): Promise<StoredTool[]> {
  if (names.length === 0) return [];
  const { tenant } = principal;
  const calls = catalogueCalls(env, tenant);
  const wish = { tenant, names, kind, nowMs: Date.now() };
  return unwrap(await knownTools.find(wish, (input) => calls((stub) => stub.find(input), SAFE)));
}

/** The tool, where this caller may call it so, with these arguments. */
export function checkStored(
  context: ResolveContext,
  { call, stored }: { call: Call; stored: StoredTool | undefined },
  { scopes = [], root = 'body.', caller = 'direct', approval }: CallPlace = {},
): StoredTool {
  // A tool that the caller may not use answers like a missing one.
  if (stored === undefined || !mayUse(context.principal, registeredGuard(stored.tool))) {
    throw toolNotFound(context.principal, call.tool_name, root);
  }
  requireScopes(context.principal, scopes, context.configuration);
  requireUsable(stored.tool, approval);
  requireCaller(stored.tool, caller);
  requireValid(stored.tool, call.arguments, `${root}arguments`);
  const held = { arguments: call.arguments, root: `${root}arguments`, workdir: null };
  requireHeld(context.principal, stored.tool, held);
  return stored;
}

export function resolveStored<C extends Call>(
  context: ResolveContext,
  { call, stored: found }: { call: C; stored: StoredTool | undefined },
  place: CallPlace = {},
): ResolvedCall<C> {
  const stored = checkStored(context, { call, stored: found }, place);
  const { tool } = stored;
  const path = `${place.root ?? 'body.'}arguments`;
  const timeoutMs = call.timeout_ms ?? DEFAULT_TIMEOUT_MS;
  const timed = { ...call, timeout_ms: timeoutMs === DEFAULT_TIMEOUT_MS ? tool.timeout_ms : timeoutMs };
  const calledAs = { name: tool.name, version: tool.version };
  const identity = identityOf(tool);
  const asks = place.approval === 'asked' && tool.approval === 'required';
  const toApprove = asks ? { identity, arguments: call.arguments, timeoutMs: timed.timeout_ms } : undefined;
  const finish = (execution: Execution) => finished(tool, execution);
  const common = { calledAs, finish, identity, toApprove };
  if (tool.kind === 'http') {
    return { ...common, call: timed, performance: httpPerformance(context, { stored, call: timed, path }) };
  }
  if (tool.kind === 'mcp') {
    requireFit(call.arguments, path);
    return { ...common, call: timed, performance: mcpPerformance(context, tool, timed) };
  }
  if (tool.kind !== 'code')
    throw new Refusal(failure('tool_unavailable', `${tool.name} is executed by its caller`));
  const cell = codeCell(tool, call.arguments);
  requireFit({ code: cell.code }, path);
  return { ...common, call: { ...timed, tool_name: cell.tool, arguments: { code: cell.code } } };
}

export function identityOf({ name, version, updated_at: digest }: RegisteredTool): ToolIdentity {
  return { name, version, digest };
}

function requireUsable(tool: RegisteredTool, approval: CallPlace['approval']): void {
  if (tool.status === 'broken') {
    throw new Refusal(failure('tool_unavailable', `${tool.name} is broken: ${tool.reason ?? 'unknown'}`));
  }
  if (tool.status === 'disabled') throw new Refusal(failure('tool_unavailable', `${tool.name} is disabled`));
  if (tool.approval === 'required' && approval === undefined) {
    throw new Refusal(failure('approval_required', `${tool.name} needs an approval for each call`));
  }
}

function requireCaller(tool: RegisteredTool, caller: ToolCaller): void {
  if (mayBeCalledBy(caller, tool.allowed_callers)) return;
  const detail =
    caller === 'direct'
      ? `${tool.name} is called by programs only`
      : `${tool.name} is not called by programs`;
  throw new Refusal(failure('tool_unavailable', detail));
}

function requireValid(tool: RegisteredTool, args: Record<string, unknown>, path: string): void {
  const compiled = compileSchema(tool.input_schema);
  if (!compiled.ok)
    throw new Refusal(failure('tool_unavailable', `${tool.name} is broken: ${compiled.expected}`));
  const checked = compiled.schema.check(args, path);
  if (!checked.ok) {
    throw new Refusal(
      failure('invalid_request', `${path}: the schema of ${tool.name} cannot be followed: ${checked.reason}`),
    );
  }
  if (checked.violations.length > 0) throw invalid(checked.violations);
}

/** A tool that says what it gives, and gives something else, has failed: whoever reads on by its schema would stumble. */
export function finished(tool: RegisteredTool, execution: Execution): Execution {
  if (tool.output_schema === undefined || execution.status !== 'succeeded') return execution;
  const compiled = compileSchema(tool.output_schema);
  const checked = compiled.ok ? compiled.schema.check(execution.structured ?? null, 'structured') : undefined;
  if (checked?.ok === true && checked.violations.length === 0) return execution;
  const violation = checked?.ok === true ? checked.violations[0] : undefined;
  const detail =
    violation === undefined ? 'it cannot be checked' : `${violation.path}: expected ${violation.expected}`;
  const error = {
    name: 'OutputMismatch',
    message: `the output does not fit the schema: ${detail}`,
    traceback: '',
  };
  return { ...execution, status: 'failed', error };
}
