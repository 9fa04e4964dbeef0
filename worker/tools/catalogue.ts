/** The built-in tools of this edge, and which of them a caller may call: discovery and calls ask the same function. */
import * as z from 'zod';
import type { Scope } from '../../shared/scopes.ts';
import { BUILT_IN_TOOLS, type ToolName, ToolNameSchema } from '../../shared/tool.ts';
import type { TenantPrincipal } from '../identity/principal.ts';
import type { ToolDefinition } from './definition.ts';
import { heldDefinition } from './held-definition.ts';
import { type Guarded, mayUse } from './policy.ts';

export interface CatalogueEntry extends ToolDefinition {
  name: ToolName;
  scope: Scope;
}

const TITLES: Record<ToolName, string> = {
  python: 'Python',
  node: 'JavaScript',
  shell: 'Shell',
  file: 'Files',
  run: 'Run a file',
};
const CATEGORIES: Record<ToolName, string> = {
  python: 'code',
  node: 'code',
  shell: 'code',
  file: 'files',
  run: 'code',
};

/** In an order that does not change. */
export const BUILT_IN_ENTRIES: readonly CatalogueEntry[] = ToolNameSchema.options.map((name) => {
  const tool = BUILT_IN_TOOLS[name];
  return {
    name,
    title: TITLES[name],
    description: tool.description,
    category: CATEGORIES[name],
    scope: tool.scope,
    inputSchema: { type: 'object', ...z.toJSONSchema(tool.arguments, { io: 'input' }) },
    effects: { readOnly: false, destructive: true, idempotent: false, openWorld: false },
  };
});

export function callableTools(principal: TenantPrincipal): CatalogueEntry[] {
  return BUILT_IN_ENTRIES.filter((entry) => mayUse(principal, builtInGuard(entry.name))).map((entry) =>
    heldDefinition(entry, principal),
  );
}

export function builtInGuard(name: ToolName): Guarded {
  return { name, requiredScopes: [BUILT_IN_TOOLS[name].scope], category: CATEGORIES[name] };
}
