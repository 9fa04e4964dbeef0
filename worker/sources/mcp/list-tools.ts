/** The tools of an MCP server, page by page to the end, or as far as it lets itself be read. */
import * as z from 'zod';
import { MAX_SOURCE_BYTES, MAX_TOOLS_OF_A_SOURCE } from '../../../shared/tool-source.ts';
import { ServerFault } from '../server-fault.ts';
import { faultOfServer } from './fault.ts';

const MAX_PAGES = 1_000;

export const ToolsPageSchema = z.looseObject({
  tools: z.array(z.unknown()),
  nextCursor: z.string().max(16_384).optional(),
});
type ToolsPage = z.infer<typeof ToolsPageSchema>;

export interface ListedTools {
  tools: unknown[];
  /** Why the list may not be whole; null where it was read to its end. */
  fault: string | null;
  /** Whether it broke off: then what is missing was there for sure. */
  isTorn: boolean;
}

const NameSchema = z.looseObject({ name: z.string() });

/** `readPage` fails as the client does. A server that gives no first page gives nothing: that fails here too. */
export async function listTools(
  readPage: (cursor: string | undefined, timeoutMs: number) => Promise<ToolsPage>,
  timeoutMs: number,
): Promise<ListedTools> {
  const deadlineMs = Date.now() + timeoutMs;
  const tools: unknown[] = [];
  const names = new Set<string>();
  const seen = new Set<string>();
  let characters = 0;
  let cursor: string | undefined;
  do {
    let page: ToolsPage;
    try {
      page = await readPage(cursor, Math.max(1, deadlineMs - Date.now()));
    } catch (error: unknown) {
      if (seen.size === 0) throw error;
      return { tools, fault: faultOfServer(error).message, isTorn: true };
    }
    // A page that comes again: of what it has, the first is the one.
    const fresh = page.tools.filter((tool) => !names.has(nameOf(tool) ?? ''));
    const isStuck =
      (page.nextCursor !== undefined && seen.has(page.nextCursor)) ||
      (page.tools.length > 0 && fresh.length === 0 && page.nextCursor !== undefined);
    for (const tool of isStuck ? fresh : page.tools) tools.push(tool);
    for (const tool of page.tools) names.add(nameOf(tool) ?? '');
    if (isStuck) return { tools, fault: 'cursor did not advance', isTorn: false };
    characters += JSON.stringify(page.tools).length;
    if (tools.length > MAX_TOOLS_OF_A_SOURCE)
      throw new ServerFault(`it lists more than ${MAX_TOOLS_OF_A_SOURCE} tools`);
    if (characters > MAX_SOURCE_BYTES) throw new ServerFault('its list of tools is too large');
    cursor = page.nextCursor;
    if (cursor !== undefined) seen.add(cursor);
  } while (cursor !== undefined && seen.size < MAX_PAGES && Date.now() < deadlineMs);
  const isWhole = cursor === undefined;
  return {
    tools,
    fault: isWhole ? null : 'its list of tools did not come to an end in time',
    isTorn: !isWhole,
  };
}

function nameOf(tool: unknown): string | undefined {
  return NameSchema.safeParse(tool).data?.name;
}
