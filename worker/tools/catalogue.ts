/** The tools of this edge, and which of them a caller may call: discovery and calls ask the same function. */
import * as z from 'zod';
import { BUILT_IN_TOOLS, type ToolName, ToolNameSchema } from '../../shared/tool.ts';
import type { TenantPrincipal } from '../identity/principal.ts';
import type { ToolDefinition } from './definition.ts';

export interface CatalogueEntry extends ToolDefinition {
  name: ToolName;
}

const TITLES: Record<ToolName, string> = {
  python: 'Python',
  node: 'JavaScript',
  shell: 'Shell',
  file: 'Files',
};
const CATEGORIES: Record<ToolName, string> = { python: 'code', node: 'code', shell: 'code', file: 'files' };

const ENTRIES: readonly CatalogueEntry[] = ToolNameSchema.options.map((name) => {
  const tool = BUILT_IN_TOOLS[name];
  return {
    name,
    title: TITLES[name],
    description: tool.description,
    category: CATEGORIES[name],
    inputSchema: { type: 'object', ...z.toJSONSchema(tool.arguments, { io: 'input' }) },
    effects: { readOnly: false, destructive: true, idempotent: false, openWorld: false },
  };
});

/** In an order that does not change. */
export function callableTools(principal: TenantPrincipal): CatalogueEntry[] {
  return ENTRIES.filter(({ name }) => principal.scopes.has(BUILT_IN_TOOLS[name].scope));
}
