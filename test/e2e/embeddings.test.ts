/** The search of tools with a model's embeddings beside words: a real gateway, and a stand-in for the model's endpoint. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { RegisteredManySchema } from '../../shared/registered-tool.ts';
import { SCOPES } from '../../shared/scopes.ts';
import {
  type Behaviour,
  type EmbeddingsStandIn,
  startEmbeddingsStandIn,
} from '../fixtures/embeddings-stand-in.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { ApiClient } from './client.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const SearchSchema = z.object({
  tools: z.array(z.object({ name: z.string(), score: z.number() })),
  embeddings: z.string(),
});
const KEY = `key-${crypto.randomUUID()}`;
const QUERY_TIMEOUT_MS = 5_000;

let model: EmbeddingsStandIn;
beforeAll(async () => {
  model = await startEmbeddingsStandIn();
});
afterEach(() => model.behave('well'));
afterAll(() => model.close());

const stack = useStack(
  () => ({}),
  async () => ({
    HTTP_TOOL_ORIGINS: JSON.stringify([model.origin]),
    EMBEDDINGS: JSON.stringify({
      kind: 'openai',
      url: model.url,
      model: 'stand-in',
      min_cosine: 0.5,
      query_timeout_ms: QUERY_TIMEOUT_MS,
    }),
    EMBEDDINGS_KEY: KEY,
  }),
);

const TOOLS = [
  tool('sky', 'The forecast of the next days'),
  tool('exchange', 'What so much of one currency is worth in another', { category: 'finance' }),
  tool('atlas', 'Maps of countries, with rain and sun in words'),
  tool('stable', 'How a horse is kept', { required_scopes: ['tools:http'] }),
  tool('press', 'What newspapers have said'),
];

function tool(name: string, description: string, more: object = {}) {
  return { name, description, category: 'general', kind: 'client', ...more };
}

let tenants = 0;

/** A tenant of its own with these tools, all of which have vectors. */
async function tenantWith(tools: readonly object[]): Promise<ApiClient> {
  tenants += 1;
  const client = await clientOf(`embedded-${tenants}`);
  await client.json(RegisteredManySchema, 'POST', '/v1/tools', { body: { tools } });
  await embedded(client);
  return client;
}

function clientOf(tenant: string, scope = Object.keys(SCOPES).join(' ')): Promise<ApiClient> {
  return stack().clientWith({ claims: { tenant, scope } });
}

async function embedded(client: ApiClient): Promise<void> {
  await until('all tools have vectors', PATIENCE_MS, async () => {
    const { embeddings } = await search(client, 'vectors');
    return embeddings === 'used' ? true : undefined;
  });
}

async function search(client: ApiClient, question: string, more = '') {
  const path = `/v1/tools/search?q=${encodeURIComponent(question)}${more}`;
  const { tools, embeddings } = (await client.json(SearchSchema, 'GET', path)).value;
  return { names: tools.map(({ name }) => name), scores: tools.map(({ score }) => score), embeddings };
}

describe('a question', () => {
  test('finds a tool by what it means, without one of its words', async () => {
    const client = await tenantWith(TOOLS);
    const { names, embeddings } = await search(client, 'shall I take an umbrella');
    expect(names.toSorted()).toEqual(['atlas', 'sky']);
    expect(embeddings).toBe('used');
    expect(await search(client, 'how many dollars')).toMatchObject({ names: ['exchange'] });
  });

  test('ranks what words and meaning find before what one of them finds', async () => {
    const client = await tenantWith([
      tool('by words', 'Newspapers with an umbrella of many newspapers'),
      tool('by both', 'Newspapers on the weather'),
      tool('by meaning', 'The forecast of the next days'),
      tool('by neither', 'How a horse is kept'),
    ]);
    const { names, scores } = await search(client, 'newspapers about rain');
    expect(names[0]).toBe('by both');
    expect(names).toHaveLength(3);
    expect(names).not.toContain('by neither');
    expect(scores).toEqual(scores.toSorted((a, b) => b - a));
    expect(scores.every((score) => score > 0 && score <= 1)).toBe(true);
  });

  test('that is like nothing gives nothing', async () => {
    const client = await tenantWith(TOOLS);
    expect(await search(client, 'xqzzvw')).toEqual({ names: [], scores: [], embeddings: 'used' });
  });

  test('is not embedded where nothing may be found: no words, no such category, no right to any tool', async () => {
    const client = await tenantWith(TOOLS);
    const asked = model.texts.length;
    const nothing = { names: [], scores: [], embeddings: 'not_needed' };
    expect(await search(client, 'the of and')).toEqual(nothing);
    expect(await search(client, 'umbrella', '&category=nowhere')).toEqual(nothing);
    const none = await clientOf(`embedded-${tenants}`, 'tools:write');
    expect(await search(none, 'umbrella')).toEqual(nothing);
    expect(model.texts).toHaveLength(asked);
  });

  test('finds by its meaning only what the caller may call, in the category that was asked for', async () => {
    const client = await tenantWith(TOOLS);
    expect((await search(client, 'gallop')).names).toEqual(['stable']);
    const less = await clientOf(`embedded-${tenants}`, 'tools:client');
    expect(await search(less, 'gallop')).toMatchObject({ names: [], embeddings: 'used' });
    expect((await search(client, 'dollars', '&category=finance')).names).toEqual(['exchange']);
    expect((await search(client, 'dollars', '&category=general')).names).toEqual([]);
  });

  test('never meets the vectors of another tenant', async () => {
    const one = await tenantWith([tool('mine', 'The forecast of the next days')]);
    const other = await tenantWith([tool('theirs', 'How a horse is kept')]);
    expect((await search(one, 'umbrella')).names).toEqual(['mine']);
    expect((await search(one, 'gallop')).names).toEqual([]);
    expect((await search(other, 'umbrella')).names).toEqual([]);
    expect((await search(other, 'gallop')).names).toEqual(['theirs']);
  });

  test('is embedded once, whoever of the tenant asks it again', async () => {
    const client = await tenantWith(TOOLS);
    const question = `umbrella ${crypto.randomUUID()}`;
    await search(client, question);
    await search(await clientOf(`embedded-${tenants}`, 'tools:client'), question);
    expect(model.texts.filter((text) => text === question)).toHaveLength(1);
  });

  test('over MCP is answered with the same word on embeddings', async () => {
    const client = await tenantWith(TOOLS);
    const body = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'search_tools', arguments: { query: 'shall I take an umbrella' } },
    };
    const headers = { accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-11-25' };
    const { text } = await client.request('POST', '/mcp', { body, headers });
    expect(text).toContain('"embeddings":"used"');
    expect(text).toContain('"name":"atlas"');
  });
});

describe('a tool', () => {
  const about = (name: string) => model.texts.filter((text) => text.startsWith(`${name}\n`));
  const put = (client: ApiClient, { name, ...body }: ReturnType<typeof tool>) =>
    client.json(z.unknown(), 'PUT', `/v1/tools/${name}`, { body });

  test('is embedded again only when it says something else', async () => {
    const name = `t${crypto.randomUUID().slice(0, 8)}`;
    const client = await tenantWith([tool(name, 'The forecast of the next days')]);
    expect(about(name)).toHaveLength(1);
    await put(client, tool(name, 'The forecast of the next days'));
    await embedded(client);
    expect(about(name)).toHaveLength(1);
    await put(client, tool(name, 'How a horse is kept'));
    await embedded(client);
    expect(about(name)).toHaveLength(2);
    expect((await search(client, 'umbrella')).names).toEqual([]);
    expect((await search(client, 'gallop')).names).toEqual([name]);
    // As it was before: that text has its vector still.
    await put(client, tool(name, 'The forecast of the next days'));
    await embedded(client);
    expect(about(name)).toHaveLength(2);
    expect((await search(client, 'umbrella')).names).toEqual([name]);
  });

  test('that is removed is found no more', async () => {
    const client = await tenantWith(TOOLS);
    await client.request('DELETE', '/v1/tools/sky');
    expect(await search(client, 'umbrella')).toMatchObject({ names: ['atlas'], embeddings: 'used' });
  });

  test('keeps its vector over a restart', async () => {
    const name = `t${crypto.randomUUID().slice(0, 8)}`;
    const client = await tenantWith([tool(name, 'The forecast of the next days')]);
    await stack().restartEdge();
    expect(await search(client, 'umbrella')).toMatchObject({ names: [name], embeddings: 'used' });
    expect(about(name)).toHaveLength(1);
  });

  test('that could not be embedded is found by its words meanwhile, and is embedded when the model is back', async () => {
    const name = `t${crypto.randomUUID().slice(0, 8)}`;
    const client = await tenantWith([tool('sky', 'The forecast of the next days')]);
    // Remembered, so that it needs no model later.
    await search(client, 'a horse');
    model.behave('with 503');
    await put(client, tool(name, 'How a horse is kept'));
    await until('the model was asked in vain', PATIENCE_MS, () => about(name)[0]);
    expect(await search(client, 'a horse')).toMatchObject({ names: [name], embeddings: 'partial' });
    model.behave('well');
    await embedded(client);
    expect((await search(client, 'gallop')).names).toEqual([name]);
  });
});

describe('a model', () => {
  test.each<[Behaviour, 'slow' | 'failed']>([
    ['never', 'slow'],
    ['with 503', 'failed'],
    ['elsewhere', 'failed'],
    ['with no JSON', 'failed'],
    ['with one vector less', 'failed'],
    ['with other dimensions', 'failed'],
    ['with zeros', 'failed'],
  ])('that answers %s leaves what words find, and the answer says so', async (behaviour, said) => {
    const client = await tenantWith(TOOLS);
    model.behave(behaviour);
    const words = await search(client, 'what newspapers have said');
    expect(words).toMatchObject({ names: ['press'], embeddings: said });
    model.behave('well');
    expect(await search(client, 'shall I take an umbrella')).toMatchObject({ embeddings: 'used' });
  });

  test('that fails again and again is left alone for a while, and used when it is back', async () => {
    const client = await tenantWith(TOOLS);
    model.behave('with 503');
    for (const n of [1, 2, 3]) expect((await search(client, `newspapers ${n}`)).embeddings).toBe('failed');
    model.behave('well');
    const asked = model.texts.length;
    await until('the model is used again', PATIENCE_MS, async () => {
      const { embeddings } = await search(client, 'shall I take an umbrella');
      return embeddings === 'used' ? true : undefined;
    });
    expect(model.texts).toHaveLength(asked + 1);
  });

  test('is given its key, which shows nowhere', async () => {
    const client = await tenantWith(TOOLS);
    expect(new Set(model.keys)).toEqual(new Set([`Bearer ${KEY}`]));
    const answer = await client.request('GET', '/v1/tools/search?q=umbrella');
    expect(answer.text + JSON.stringify([...answer.headers])).not.toContain(KEY);
  });
});
