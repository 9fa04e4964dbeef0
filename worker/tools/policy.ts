/** Who may use a tool: what lists and searches show, and what a call is allowed, is decided here and nowhere else. */
import type { ArgumentConstraint } from '../../shared/argument-constraint.ts';
import type { ToolName } from '../../shared/tool.ts';
import type { ToolPolicy } from '../../shared/tool-policy.ts';

export interface Guarded {
  name: string;
  requiredScopes: readonly string[];
  category: string;
  /** Who may call it; anybody where it is absent. */
  allowedCallers?: readonly string[];
}

export interface Rights {
  scopes: ReadonlySet<string>;
  /** To what its calls are held beside them; null where to nothing. */
  toolPolicy: ToolPolicy | null;
}

/** As they travel to another object. */
export function rightsOf({ scopes, toolPolicy }: Rights): {
  scopes: string[];
  toolPolicy: ToolPolicy | null;
} {
  return { scopes: [...scopes], toolPolicy };
}

export function mayUse({ scopes, toolPolicy }: Rights, tool: Guarded): boolean {
  if (!hasToolScope(scopes) || !tool.requiredScopes.every((scope) => scopes.has(scope))) return false;
  return isWithin(toolPolicy, tool);
}

/** Whether the policy leaves the tool at all, with whatever arguments. */
export function isWithin(policy: ToolPolicy | null, tool: Pick<Guarded, 'name' | 'category'>): boolean {
  if (policy === null) return true;
  const { tools, categories } = policy;
  if (tools !== undefined && !tools.includes(tool.name)) return false;
  return categories === undefined || categories.some((category) => isInCategory(category, tool));
}

/** What arguments of a call of the tool must be; all of them hold. */
export function constraintsOn(
  { toolPolicy }: Pick<Rights, 'toolPolicy'>,
  guarded: Pick<Guarded, 'name' | 'category'>,
): ArgumentConstraint[] {
  return (toolPolicy?.arguments ?? []).flatMap(({ tool, category, ...constraint }) => {
    const isOfTool = tool === undefined ? isInCategory(category ?? '', guarded) : tool === guarded.name;
    if (!isOfTool) return [];
    // A move has two paths, and who names the one means both.
    if (guarded.name !== FILE_TOOL || constraint.argument !== '/path') return [constraint];
    return [constraint, { ...constraint, argument: '/destination', required: false }];
  });
}

/** `a/b` is in `a` and in `a/b`. */
export function isInCategory(category: string, { category: own }: Pick<Guarded, 'category'>): boolean {
  return own === category || own.startsWith(`${category}/`);
}

const FILE_TOOL: ToolName = 'file';
const TOOL_SCOPE_PREFIX = 'tools:';

/** A token without any scope of a tool calls none, whatever the tools ask for. */
export function hasToolScope(scopes: ReadonlySet<string>): boolean {
  return [...scopes].some((scope) => scope.startsWith(TOOL_SCOPE_PREFIX));
}

export type ToolCaller = 'direct' | 'code';

/**
 * `allowed_callers` in the words of either model API, or none: then anybody. What is not `direct` is code: `code`,
 * `programmatic`, `code_execution_20250825`.
 */
export function mayBeCalledBy(caller: ToolCaller | 'any', allowed: readonly string[] | undefined): boolean {
  if (caller === 'any' || allowed === undefined || allowed.length === 0) return true;
  return allowed.some((one) => (one === 'direct') === (caller === 'direct'));
}
