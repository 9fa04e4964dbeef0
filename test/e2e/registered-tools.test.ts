/** Tools that tenants register, on the real stack: functions run in the caller's sandbox, catalogues are large. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../shared/execution.ts';
import { RegisteredManySchema, RegisteredToolSchema } from '../../shared/registered-tool.ts';
import { SCOPES } from '../../shared/scopes.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { ApiClient } from './client.ts';
import { useSession, useStack } from './stack.ts';

const stack = useStack();
const session = useSession(stack);

const ListSchema = z.object({
  tools: z.array(z.object({ name: z.string() })),
  next_cursor: z.string().nullable(),
});
const SearchSchema = z.object({ tools: z.array(z.object({ name: z.string(), score: z.number() })) });

async function register(tool: object): Promise<void> {
  const { name, ...body } = z.looseObject({ name: z.string() }).parse(tool);
  await stack().api.json(RegisteredToolSchema, 'PUT', `/v1/tools/${encodeURIComponent(name)}`, { body });
}

async function call(tool_name: string, args: object, more: object = {}) {
  const body = { tool_name, arguments: args, ...more };
  return (await stack().api.json(ExecutionSchema, 'POST', `${session().path}/execute`, { body })).value;
}

function python(name: string, code: string, more: object = {}) {
  return { name, description: `Does ${name}`, kind: 'code', language: 'python', code, ...more };
}

describe('a function in Python', () => {
  test('takes its arguments by name and gives data, its output beside it', async () => {
    await register(
      python('sums', 'def sums(a, b=10):\n    print("adding", a)\n    return {"sum": a + b, "é": None}\n'),
    );
    expect(await call('sums', { a: 1 })).toMatchObject({
      tool_name: 'sums',
      status: 'succeeded',
      structured: { sum: 11, é: null },
      value: null,
      stdout: 'adding 1\n',
    });
  });

  test.each(['9007199254740993', '2512292042121000001', '-9007199254740993'])(
    'R61: never gets the integer %s rounded',
    async (digits) => {
      await register(
        python('echo_id', 'def echo_id(id):\n    print(id)\n', {
          input_schema: { type: 'object', properties: { id: { type: 'integer' } }, required: ['id'] },
        }),
      );
      const headers = { authorization: `Bearer ${stack().api.token}`, 'content-type': 'application/json' };
      const post = async (path: string, body: string) => {
        const answer = await fetch(`${stack().api.url}${session().path}${path}`, {
          method: 'POST',
          headers,
          body,
        });
        return { status: answer.status, text: await answer.text() };
      };
      const refused = await post('/execute', `{"tool_name":"echo_id","arguments":{"id":${digits}}}`);
      expect(refused.status).toBe(400);
      expect(refused.text).toContain('as strings');
      const calls = [
        { id: 'c1', type: 'function', function: { name: 'echo_id', arguments: `{"id":${digits}}` } },
      ];
      const told = await post('/tool_calls', JSON.stringify({ tool_calls: calls }));
      expect(told.text).toContain('as strings');
      expect(await call('echo_id', { id: Number.MAX_SAFE_INTEGER })).toMatchObject({
        stdout: '9007199254740991\n',
      });
    },
  );

  test('neither sees nor leaves variables of the session', async () => {
    await session().py('secret = 41');
    await register(
      python(
        'peek',
        'left = 1\ndef main():\n    return sorted(k for k in globals() if not k.startswith("__"))\n',
      ),
    );
    expect(await call('peek', {})).toMatchObject({ structured: ['left', 'main'] });
    expect((await session().py('"left" in globals(), secret')).value).toBe('(False, 41)');
  });

  test.each([
    ['raises', 'def main():\n    raise KeyError("nothing")\n', 'KeyError', "'nothing'"],
    ['gives what is not JSON', 'def main():\n    return {1, 2}\n', 'TypeError', 'not JSON serializable'],
    ['gives a number that is none', 'def main():\n    return float("nan")\n', 'ValueError', 'Out of range'],
    ['gives an integer beyond 2^53', 'def main():\n    return [2**53]\n', 'ValueError', 'integer beyond'],
    ['has no function', 'x = 1\n', 'LookupError', 'defines no function'],
    ['does not parse', 'def main(:\n', 'SyntaxError', ''],
  ])('that %s has failed and says so', async (_, code, name, message) => {
    await register(python('failing', code));
    const execution = await call('failing', {});
    expect(execution).toMatchObject({ status: 'failed', structured: null, error: { name } });
    expect(execution.error?.message).toContain(message);
  });

  test('may be asynchronous, and is stopped at its own deadline', async () => {
    await register(
      python('waits', 'import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    return "done"\n'),
    );
    expect(await call('waits', {})).toMatchObject({ structured: 'done' });
    await register(python('hangs', 'import time\ndef main():\n    time.sleep(60)\n', { timeout_ms: 300 }));
    expect(await call('hangs', {})).toMatchObject({ status: 'timeout' });
  });

  test('keeps integers up to 2^53 as they are', async () => {
    await register(python('same', 'def main(n):\n    return n\n'));
    expect(await call('same', { n: 9_007_199_254_740_991 })).toMatchObject({
      structured: 9_007_199_254_740_991,
    });
  });
});

test('a function keeps its name and its data in the history, detached and streamed', async () => {
  await register(python('kept', 'def main():\n    print("out")\n    return [1]\n'));
  const body = { tool_name: 'kept', detach: true };
  const detached = await stack().api.json(ExecutionSchema, 'POST', `${session().path}/execute`, { body });
  expect(await session().ended(detached.value.execution_id, PATIENCE_MS)).toMatchObject({
    tool_name: 'kept',
    structured: [1],
    stdout: 'out\n',
  });
  const [last] = (await session().executions()).executions;
  expect(last?.tool_name).toBe('kept');
});

test('R49: names for models are the same after a restart, and each is called as the tool that it stands for', async () => {
  const names = ['calendar.list/v2', 'calendar_list_v2', 'calendar-list.v2', '名前', 'x y']
    .map((name) => `géo srv.v2 ${name}`)
    .concat('a'.repeat(70), `${'a'.repeat(69)}b`);
  for (const name of names) {
    await register(python(name, `def main():\n    return ${JSON.stringify(name)}\n`, { category: 'r49' }));
  }
  const ExportSchema = z.object({
    tools: z.array(z.object({ function: z.object({ name: z.string() }) })),
    names: z.record(z.string(), z.string()),
  });
  const exported = async () =>
    (await stack().api.json(ExportSchema, 'GET', '/v1/tools?format=openai&category=r49')).value;
  const before = await exported();
  await stack().restartEdge();
  expect(await exported()).toEqual(before);
  const given = before.tools.map(({ function: { name } }) => name);
  expect(new Set(given).size).toBe(names.length);
  for (const name of given) expect(name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
  const body = {
    role: 'assistant',
    tool_calls: given.map((name) => ({ id: name, type: 'function', function: { name, arguments: '{}' } })),
  };
  const MessagesSchema = z.object({ messages: z.array(z.object({ content: z.string() })) });
  const { value } = await stack().api.json(MessagesSchema, 'POST', `${session().path}/tool_calls`, { body });
  const called = value.messages.map(({ content }) => z.string().parse(JSON.parse(content)));
  expect(called).toEqual(given.map((name) => before.names[name] ?? name));
  expect(called.toSorted()).toEqual(names.toSorted());
});

describe('an HTTP tool', () => {
  test('reaches nothing inside, whatever its registration says', async () => {
    const server = createServer((_, response) => response.end('inside'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    try {
      for (const url of [
        `http://127.0.0.1:${port}/`,
        `https://127.0.0.1:${port}/`,
        'https://localhost/',
        stack().api.url,
      ]) {
        const body = { description: 'Looks inside', kind: 'http', method: 'GET', url };
        const answer = await stack().api.request('PUT', '/v1/tools/inside', { body });
        expect(answer.status, url).toBe(400);
      }
    } finally {
      server.close();
    }
  });
});

describe('two tenants with 5,000 tools each', () => {
  const COUNT = 5_000;
  const AT_ONCE = 500;
  const subjects = [
    'weather',
    'invoices',
    'flights',
    'recipes',
    'contacts',
    'calendars',
    'translations',
    'maps',
  ];

  async function clientOf(tenant: string): Promise<ApiClient> {
    return stack().clientWith({ claims: { tenant, scope: Object.keys(SCOPES).join(' ') } });
  }

  async function fill(client: ApiClient, mark: string): Promise<void> {
    for (let from = 0; from < COUNT; from += AT_ONCE) {
      const tools = Array.from({ length: AT_ONCE }, (_, index) => {
        const n = from + index;
        const subject = subjects[n % subjects.length];
        return {
          ...python(`${mark}_${subject}_${n}`, 'def main():\n    return 1\n'),
          description: `Reads ${subject} of ${mark}, number ${n}`,
        };
      });
      const { value } = await client.json(RegisteredManySchema, 'POST', '/v1/tools', { body: { tools } });
      expect(value.tools.every(({ status }) => status === 'created')).toBe(true);
    }
  }

  async function walk(client: ApiClient): Promise<string[]> {
    const names: string[] = [];
    let cursor: string | null = null;
    do {
      const query: string = cursor === null ? '' : `&cursor=${cursor}`;
      const page: z.infer<typeof ListSchema> = (
        await client.json(ListSchema, 'GET', `/v1/tools?limit=1000${query}`)
      ).value;
      names.push(...page.tools.map(({ name }) => name));
      cursor = page.next_cursor;
    } while (cursor !== null && names.length <= COUNT * 2);
    return names;
  }

  test('never see or call each other’s, and each finds its own', async () => {
    const [alpha, beta] = await Promise.all([clientOf('alpha'), clientOf('beta')]);
    await fill(alpha, 'alphaone');
    await fill(beta, 'betatwo');
    for (const [client, own, other] of [
      [alpha, 'alphaone', 'betatwo'],
      [beta, 'betatwo', 'alphaone'],
    ] as const) {
      const names = await walk(client);
      expect(names.filter((name) => name.startsWith(own))).toHaveLength(COUNT);
      expect(new Set(names).size).toBe(names.length);
      expect(names.filter((name) => name.includes(other))).toEqual([]);
      const search = (q: string) =>
        client.json(SearchSchema, 'GET', `/v1/tools/search?q=${encodeURIComponent(q)}&top_k=50`);
      expect((await search(`flights ${own}`)).value.tools).toHaveLength(50);
      expect((await search(other)).value.tools).toEqual([]);
      const body = { tool_name: `${other}_weather_0`, arguments: {} };
      const called = await client.request('POST', '/v1/execute', { body });
      expect(called.status).toBe(404);
      expect(called.text).toContain('tool_not_found');
    }
  }, 400_000);
});
