/** Who may use a tool: what lists and searches show, and what a call is allowed, is decided here and nowhere else. */
export interface Guarded {
  requiredScopes: readonly string[];
  category: string;
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
