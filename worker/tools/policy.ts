/** Who may use a tool: what lists and searches show, and what a call is allowed, is decided here and nowhere else. */
export interface Guarded {
  requiredScopes: readonly string[];
  category: string;
  /** Who may call it; anybody where it is absent. */
  allowedCallers?: readonly string[];
}

export interface Rights {
  scopes: ReadonlySet<string>;
}

export function mayUse({ scopes }: Rights, { requiredScopes }: Guarded): boolean {
  return hasToolScope(scopes) && requiredScopes.every((scope) => scopes.has(scope));
}

/** `a/b` is in `a` and in `a/b`. */
export function isInCategory(category: string, { category: own }: Pick<Guarded, 'category'>): boolean {
  return own === category || own.startsWith(`${category}/`);
}

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
