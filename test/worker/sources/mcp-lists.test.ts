/** What a server says that it has, whatever it says: pages, errors, changes. */
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { RegisteredToolSchema } from '../../../shared/registered-tool.ts';
import { ToolListSchema } from '../../../worker/routes/tools.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { rpc } from '../mcp/rpc.ts';
import {
  asked,
  create,
  read,
  ready,
  refresh,
  scopes,
  tool,
  toolNames,
  useHttpSources,
} from './http-sources.ts';
import { scriptedServer, sessionServer, statelessHandler } from './stand-ins.ts';

const { execute, executed, internet } = useHttpSources();

describe('an MCP server over HTTP', () => {
  test('R14: is read to the end of its pages, also behind a cursor that is empty', async () => {
    const pages: Record<string, { tools: unknown[]; nextCursor?: string }> = {
      first: { tools: [tool('a'), tool('b')], nextCursor: '' },
      '': { tools: [tool('c'), tool('d')], nextCursor: 'eyJv' },
      eyJv: { tools: [tool('e')] },
    };
    internet().host(
      'pages.example.com',
      scriptedServer({ 'tools/list': ({ cursor }) => pages[typeof cursor === 'string' ? cursor : 'first'] }),
    );
    const source = await ready({ name: 'pages', url: 'https://pages.example.com/mcp' });
    expect(source.tool_count).toBe(5);
    expect(await toolNames()).toEqual(expect.arrayContaining(['pages.a', 'pages.e']));
  });

  test('R14: whose list has no end or breaks off gives what was read, and says that it may not be all', async () => {
    const isStuck = scriptedServer({
      'tools/list': () => ({ tools: [tool('a'), tool('b')], nextCursor: '0' }),
    });
    let asks = 0;
    internet().host('stuck.example.com', (request) => {
      asks += 1;
      return isStuck(request);
    });
    let page = 0;
    internet().host(
      'round.example.com',
      scriptedServer({
        'tools/list': () => {
          page += 1;
          return { tools: [tool('a')], nextCursor: String(page) };
        },
      }),
    );
    const begins = scriptedServer({ 'tools/list': () => ({ tools: [tool('a')], nextCursor: '1' }) });
    internet().host('torn.example.com', async (request) => {
      const text = request.method === 'POST' ? await request.clone().text() : '';
      if (!text.includes('"cursor"')) return begins(request);
      const { id } = z.object({ id: z.union([z.string(), z.number()]) }).parse(JSON.parse(text));
      return Response.json({ jsonrpc: '2.0', id, error: { code: -32_603, message: 'the disk is full' } });
    });
    for (const name of ['stuck', 'round', 'torn']) {
      expect((await create({ name, url: `https://${name}.example.com/mcp` })).status).toBe(201);
    }
    const said = await Promise.all(['stuck', 'round', 'torn'].map(asked));
    expect(
      said.map(({ status, tool_count, last_error }) => [status, tool_count, last_error?.message]),
    ).toEqual([
      ['degraded', 2, 'cursor did not advance'],
      ['degraded', 1, 'cursor did not advance'],
      ['degraded', 1, 'the server answered with the error -32603: the disk is full'],
    ]);
    expect(asks).toBeLessThan(100);
    expect(page).toBeLessThan(100);
    const names = await toolNames();
    expect(names.filter((name) => name.includes('.'))).toEqual(['round.a', 'stuck.a', 'stuck.b', 'torn.a']);
    expect(await refresh('torn')).toMatchObject({ status: 'degraded', tool_count: 1 });
  });

  test('keeps the whole list that it gave when a later one breaks off', async () => {
    let isTorn = false;
    internet().host(
      'tearing.example.com',
      scriptedServer({
        'tools/list': ({ cursor }) => {
          if (cursor === undefined) return { tools: [tool('a')], nextCursor: '1' };
          return isTorn ? undefined : { tools: [tool('b')] };
        },
      }),
    );
    await ready({ name: 'tearing', url: 'https://tearing.example.com/mcp' });
    isTorn = true;
    expect(await refresh('tearing')).toMatchObject({ status: 'degraded', tool_count: 2 });
    isTorn = false;
    expect(await refresh('tearing')).toMatchObject({ status: 'ready', tool_count: 2, last_error: null });
  });

  test('R58: that cannot be reached or is of no version that is spoken here has failed, and says why', async () => {
    internet().host('past.example.com', scriptedServer({}, { protocolVersion: '1999-01-01' }));
    for (const name of ['past', 'nowhere']) {
      expect((await create({ name, url: `https://${name}.example.com/mcp` })).status).toBe(201);
    }
    const said = await Promise.all(['past', 'nowhere'].map(asked));
    expect(said.map(({ status }) => status)).toEqual(['failed', 'failed']);
    expect(said.map(({ last_error }) => last_error?.message)).toEqual([
      'unsupported protocol version',
      'the server cannot be reached, or its answer cannot be read',
    ]);
    expect(said.every(({ next_poll_at }) => next_poll_at !== null)).toBe(true);
    expect((await toolNames()).filter((name) => name.includes('.'))).toEqual([]);
  });

  test('keeps its tools when it fails later, and its tools follow what it lists', async () => {
    let listed: unknown[] | undefined = [tool('a'), tool('b')];
    internet().host(
      'moody.example.com',
      scriptedServer({ 'tools/list': () => (listed === undefined ? undefined : { tools: listed }) }),
    );
    await ready({ name: 'moody', url: 'https://moody.example.com/mcp' });
    listed = undefined;
    expect(await refresh('moody')).toMatchObject({ status: 'failed', tool_count: 2 });
    expect(await toolNames()).toEqual(expect.arrayContaining(['moody.a', 'moody.b']));
    listed = [tool('b'), tool('c')];
    expect(await refresh('moody')).toMatchObject({ status: 'ready', tool_count: 2, last_error: null });
    const names = await toolNames();
    expect(names).toEqual(expect.arrayContaining(['moody.b', 'moody.c']));
    expect(names).not.toContain('moody.a');
  });

  test('costs nobody anything by a bad tool: it is broken with its reason, or named where it is none', async () => {
    internet().host(
      'mixed.example.com',
      scriptedServer({
        'tools/list': () => ({
          tools: [
            tool('good'),
            { name: 'no schema' },
            { ...tool('odd'), inputSchema: { $schema: 'https://json-schema.org/draft/2019-09/schema' } },
            { ...tool('huge'), inputSchema: { type: 'object', description: 'x'.repeat(70_000) } },
            { description: 'has no name' },
            tool('good'),
            'text',
          ],
        }),
      }),
    );
    const source = await ready({ name: 'mixed', url: 'https://mixed.example.com/mcp' });
    expect(source).toMatchObject({ tool_count: 4, broken_count: 3 });
    expect(source.problems).toEqual([
      { name: null, reason: 'it is not a tool with a name' },
      { name: 'good', reason: 'it is listed twice' },
      { name: null, reason: 'it is not a tool with a name' },
    ]);
    expect((await toolNames()).filter((name) => name.startsWith('mixed.'))).toEqual(['mixed.good']);
    const odd = await api('GET', '/v1/tools/mixed.odd', { token: await scopes() });
    expect(RegisteredToolSchema.parse(odd.json)).toMatchObject({
      status: 'broken',
      source: 'mixed',
      reason: expect.stringContaining('2019-09'),
    });
    expect(problemIn(await execute('mixed.odd', {})).code).toBe('tool_unavailable');
  });

  test('R73: that is slow or enormous holds up nobody else', async () => {
    const large = Array.from({ length: 2_000 }, (_, n) => ({
      ...tool(`t${n}`),
      description: 'x'.repeat(1_024),
    }));
    internet().host('silent.example.com', () => new Promise<Response>(() => undefined));
    internet().host('large.example.com', scriptedServer({ 'tools/list': () => ({ tools: large }) }));
    internet().host('quick.example.com', scriptedServer({ 'tools/list': () => ({ tools: [tool('a')] }) }));
    const made = async (name: string) =>
      expect((await create({ name, url: `https://${name}.example.com/mcp` })).status).toBe(201);
    await made('silent');
    await made('quick');
    expect(await asked('quick')).toMatchObject({ status: 'ready' });
    // Before anything that takes time: it is waited for only so long.
    expect((await read('silent')).status).toBe('pending');
    await made('large');
    expect(await refresh('quick')).toMatchObject({ status: 'ready' });
    expect(await asked('large')).toMatchObject({ status: 'ready', tool_count: 2_000 });
    const names = new Set<string>();
    let cursor: string | null = null;
    do {
      const query: string = cursor === null ? '' : `&cursor=${cursor}`;
      const page = await api('GET', `/v1/tools?limit=1000${query}`, { token: await scopes() });
      expect(page.text.length).toBeLessThan(1024 * 1024);
      const parsed = ToolListSchema.parse(page.json);
      for (const { name } of parsed.tools) names.add(name);
      cursor = parsed.next_cursor;
    } while (cursor !== null);
    expect([...names].filter((name) => name.startsWith('large.'))).toHaveLength(2_000);
    expect(names).toContain('quick.a');
    const overMcp: string[] = [];
    let next: string | undefined;
    do {
      const params = next === undefined ? {} : { cursor: next };
      const list = { jsonrpc: '2.0', id: 1, method: 'tools/list', params };
      const { text, messages } = await rpc(list, { token: await scopes() });
      expect(text.length).toBeLessThan(1024 * 1024);
      const page = z
        .object({ tools: z.array(z.object({ name: z.string() })), nextCursor: z.string().optional() })
        .parse(messages[0]?.result);
      overMcp.push(...page.tools.map(({ name }) => name));
      next = page.nextCursor;
    } while (next !== undefined);
    expect(new Set(overMcp).size).toBe(overMcp.length);
    expect(overMcp.filter((name) => name.startsWith('large.'))).toHaveLength(2_000);
    expect(overMcp).toContain('quick.a');
  });

  test('says when its list changed, in either era', async () => {
    // By a call: what it tells then belongs to the object that made it, as over a network.
    const names = { newer: ['grow'], older: ['grow'] };
    const server = statelessHandler((newer) => {
      for (const name of names.newer) {
        newer.registerTool(name, { inputSchema: z.object({}) }, () => {
          names.newer = ['grow', 'b'];
          server.toolsChanged();
          return { content: [] };
        });
      }
    });
    internet().host('new.example.com', server.answer);
    const sessions = sessionServer((older) => {
      older.setRequestHandler('tools/list', () => ({
        tools: names.older.map((name) => ({ name, inputSchema: { type: 'object' } })),
      }));
      older.setRequestHandler('tools/call', async () => {
        names.older = ['grow', 'b'];
        await older.sendToolListChanged();
        return { content: [] };
      });
    });
    internet().host('old.example.com', sessions.answer);
    for (const name of ['new', 'old']) {
      await ready({ name, url: `https://${name}.example.com/mcp` });
      await eventually(async () => {
        // Not before it listens: then nobody hears it.
        expect(await executed(`${name}.grow`, {})).toMatchObject({ status: 'succeeded' });
        expect(await toolNames()).toContain(`${name}.b`);
      }, 500);
    }
  });
});
