/** Pages of the tools that a caller may call: the built-in ones first, then the registered ones by name. */
import { fromBase64Url, toBase64Url, utf8 } from '../../shared/encoding.ts';
import { invalid } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { catalogueCalls, SAFE } from '../objects/object-calls.ts';
import { codeTool } from '../programs/code-tool.ts';
import { callableTools } from './catalogue.ts';
import type { ToolDefinition } from './definition.ts';
import type { ResolveContext } from './performance.ts';
import { isInCategory, rightsOf } from './policy.ts';
import { shownTo } from './registered.ts';

export const TOOL_LIST_LIMITS = { default: 200, max: 1_000 } as const;
/** Schemas may be large: a page stays under a megabyte, whatever is in it. */
const MAX_PAGE_CHARACTERS = 768 * 1024;

export interface ToolPage {
  tools: ToolDefinition[];
  nextCursor: string | null;
}

export async function toolPage(
  context: ResolveContext,
  query: {
    category?: string | undefined;
    cursor?: string | undefined;
    limit: number;
    callers?: 'direct' | 'any';
    /** Whether the tool `code` is among them, and where it names its functions. */
    functions?: 'description' | 'argument' | undefined;
  },
): Promise<ToolPage> {
  const { env, principal } = context;
  const { category, cursor, limit } = query;
  const after = cursor === undefined ? undefined : nameInCursor(cursor);
  const builtIn: ToolDefinition[] = after === undefined ? callableTools(principal) : [];
  const { functions } = query;
  const isFirst = after === undefined && functions !== undefined;
  const code = isFirst ? await codeTool(context, { functions }) : undefined;
  const first = [...builtIn, ...(code === undefined ? [] : [code])].filter(
    (tool) => category === undefined || isInCategory(category, tool),
  );
  // A page has at least one registered tool, or the walk would not go on.
  const room = Math.max(1, limit - first.length);
  const listed = unwrap(
    await catalogueCalls(env, principal.tenant)(
      (stub) =>
        stub.list({
          ...rightsOf(principal),
          category,
          caller: query.callers ?? 'direct',
          order: 'name',
          after: after ?? null,
          limit: room,
          maxCharacters: MAX_PAGE_CHARACTERS,
        }),
      SAFE,
    ),
  );
  return {
    tools: [...first, ...listed.tools.map((tool) => shownTo(principal, tool))],
    nextCursor: listed.next === null ? null : cursorOf(listed.next),
  };
}

export function cursorOf(name: string): string {
  return toBase64Url(utf8(name));
}

export function nameInCursor(cursor: string): string {
  const bytes = fromBase64Url(cursor);
  if (bytes === undefined) {
    throw invalid([{ path: 'query.cursor', expected: 'next_cursor of a former answer' }]);
  }
  return new TextDecoder().decode(bytes);
}
