/** Tools by MCP against the same by REST: one call, and a walk through a large catalogue. */
import * as z from 'zod';
import type { Api } from './api.ts';
import { compare } from './calls.ts';
import { timeInRounds } from './rounds.ts';
import type { Measurement } from './table.ts';
import { madeData } from './tool-data.ts';

const ROUNDS = 100;
const WARM_UP_ROUNDS = 100;
const WALKS = 5;
const TOOLS = 5_000;
const TOOLS_AT_ONCE = 500;
const PAGE = 1_000;
const CODE = '123456 * 654321';
const EXPECTED = '80779853376';

const CalledSchema = z.object({ content: z.array(z.looseObject({ text: z.string() })) });
const RestPageSchema = z.object({ tools: z.array(z.unknown()), next_cursor: z.string().nullable() });
const McpPageSchema = z.object({ tools: z.array(z.unknown()), nextCursor: z.string().optional() });

export async function measureToolRoads(api: Api, sessionId: string): Promise<Measurement> {
  const [byMcp, byRest] = await timeInRounds(
    [
      { name: 'python cell over MCP', run: () => callByMcp(api, sessionId) },
      {
        name: 'over REST',
        run: async () => {
          const { value } = await api.execute(sessionId, 'python', { code: CODE });
          if (value !== EXPECTED) throw new Error(`the call gave ${value}`);
        },
      },
    ],
    { rounds: ROUNDS, warmUpRounds: WARM_UP_ROUNDS },
  );
  await registerMany(api);
  const pages = { mcp: 0, rest: 0 };
  const walks = await timeInRounds(
    [
      {
        name: 'catalogue walk over MCP',
        run: async () => {
          pages.mcp = await walkByMcp(api);
        },
      },
      {
        name: 'catalogue walk over REST',
        run: async () => {
          pages.rest = await walkByRest(api);
        },
      },
    ],
    { rounds: WALKS, warmUpRounds: 1 },
  );
  const counts = [pages.mcp, pages.rest];
  return {
    lines: [compare(byMcp, byRest, { atMost: 1.5 })],
    notes: walks.map(
      ({ name, medianMs }, index) =>
        `${name}: ${TOOLS} tools in ${counts[index]} pages, ${medianMs.toFixed(0)} ms`,
    ),
  };
}

async function callByMcp(api: Api, sessionId: string): Promise<void> {
  const params = { name: 'python', arguments: { code: CODE, session_id: sessionId } };
  const { content } = CalledSchema.parse(await api.mcp('tools/call', params));
  if (content[0]?.text !== EXPECTED) throw new Error(`the call gave ${content[0]?.text}`);
}

async function registerMany(api: Api): Promise<void> {
  const tools = madeData(TOOLS).tools.map(({ name, description, category }) => ({
    name,
    description,
    category,
    kind: 'code',
    language: 'python',
    code: 'def main(**given):\n    return given',
    input_schema: { type: 'object', properties: { id: { type: 'string', description: 'which one' } } },
  }));
  for (let from = 0; from < tools.length; from += TOOLS_AT_ONCE) {
    await api.post('/v1/tools', { tools: tools.slice(from, from + TOOLS_AT_ONCE) });
  }
}

async function walkByRest(api: Api): Promise<number> {
  let seen = 0;
  let pages = 0;
  for (let cursor: string | null = ''; cursor !== null; pages += 1) {
    const after: string = cursor === '' ? '' : `&cursor=${cursor}`;
    const page = RestPageSchema.parse(await api.get(`/v1/tools?limit=${PAGE}${after}`));
    seen += page.tools.length;
    cursor = page.next_cursor;
  }
  if (seen < TOOLS) throw new Error(`the walk saw ${seen} tools`);
  return pages;
}

async function walkByMcp(api: Api): Promise<number> {
  let seen = 0;
  let pages = 0;
  for (let cursor: string | undefined = ''; cursor !== undefined; pages += 1) {
    const page = McpPageSchema.parse(await api.mcp('tools/list', cursor === '' ? {} : { cursor }));
    seen += page.tools.length;
    cursor = page.nextCursor;
  }
  if (seen < TOOLS) throw new Error(`the walk saw ${seen} tools`);
  return pages;
}
