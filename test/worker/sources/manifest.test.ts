import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { fromBase64, toBase64, utf8 } from '../../../shared/encoding.ts';
import { RegisteredToolSchema } from '../../../shared/registered-tool.ts';
import { CreatedSourceSchema, ToolSourceListSchema, ToolSourceSchema } from '../../../shared/tool-source.ts';
import { ToolListSchema } from '../../../worker/routes/tools.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { ORIGIN } from '../issuer-bindings.ts';
import { Internet } from './stand-ins.ts';

let internet: Internet;

const scopes = (scope = ALL_SCOPES) => tokenOf({ claims: { tenant: 'acme', sub: 'alice', scope } });

beforeEach(() => {
  internet = new Internet();
  internet.start();
});
afterEach(async () => {
  const { sources } = ToolSourceListSchema.parse(
    (await api('GET', '/v1/tool_sources', { token: await scopes() })).json,
  );
  for (const { name } of sources) await api('DELETE', `/v1/tool_sources/${name}`, { token: await scopes() });
  vi.restoreAllMocks();
});

async function create(body: object, token?: string) {
  const answer = await api('POST', '/v1/tool_sources', {
    token: token ?? (await scopes()),
    body: { kind: 'manifest', ...body },
  });
  expect(answer.status, answer.text).toBe(201);
  return CreatedSourceSchema.parse(answer.json);
}

async function refresh(name: string) {
  const answer = await api('POST', `/v1/tool_sources/${name}/refresh`, { token: await scopes() });
  return ToolSourceSchema.parse(answer.json);
}

async function registered(name: string) {
  const answer = await api('GET', `/v1/tools/${name}`, { token: await scopes() });
  return RegisteredToolSchema.parse(answer.json);
}

async function namesOf(source: string): Promise<string[]> {
  const answer = await api('GET', '/v1/tools?limit=1000', { token: await scopes() });
  const { tools } = ToolListSchema.parse(answer.json);
  return tools.map(({ name }) => name).filter((name) => name.startsWith(`${source}.`));
}

const WEATHER = {
  name: 'weather',
  description: 'The weather of a city',
  url: '/v1/weather/{city}',
  method: 'GET',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

describe('a manifest', () => {
  test('gives its tools, and they are called at its host with the credentials of the source', async () => {
    internet.host('api.example.com', (request) =>
      request.url.endsWith('/tools.json')
        ? Response.json({
            tools: [WEATHER, { ...WEATHER, name: 'away', url: 'https://evil.example.com/{city}' }],
          })
        : Response.json({ sky: 'blue' }),
    );
    internet.host('evil.example.com', () => Response.json({}));
    await create({
      name: 'city',
      url: 'https://api.example.com/tools.json',
      credentials: { 'x-api-key': 'very-secret-key' },
    });
    expect(await refresh('city')).toMatchObject({ status: 'ready', tool_count: 2, problems: [] });
    expect(await registered('city.weather')).toMatchObject({
      kind: 'http',
      url: 'https://api.example.com/v1/weather/{city}',
      category: 'city',
      credential_names: ['x-api-key'],
      source: 'city',
    });
    for (const tool of ['city.weather', 'city.away']) {
      const body = { tool_name: tool, arguments: { city: 'Rome' } };
      const answer = await api('POST', '/v1/execute', { token: await scopes(), body });
      expect(answer.json).toMatchObject({ status: 'succeeded' });
    }
    const called = internet.requests.filter(({ url }) => url.endsWith('/Rome'));
    expect(called.map(({ headers }) => headers.get('x-api-key'))).toEqual(['very-secret-key', null]);
  });

  test('is asked for again with its ETag, and nothing is written where it is the same', async () => {
    let etag = '"1"';
    internet.host('api.example.com', (request) =>
      request.headers.get('if-none-match') === etag
        ? new Response(null, { status: 304 })
        : Response.json(
            { tools: [WEATHER, ...(etag === '"2"' ? [{ ...WEATHER, name: 'more' }] : [])] },
            { headers: { etag } },
          ),
    );
    await create({ name: 'city', url: 'https://api.example.com/tools.json' });
    await refresh('city');
    const { updated_at } = await registered('city.weather');
    const again = await refresh('city');
    expect(again).toMatchObject({ status: 'ready', tool_count: 1 });
    expect(internet.requests.at(-1)?.headers.get('if-none-match')).toBe('"1"');
    expect((await registered('city.weather')).updated_at).toBe(updated_at);
    etag = '"2"';
    expect(await refresh('city')).toMatchObject({ tool_count: 2 });
    expect(await namesOf('city')).toEqual(['city.more', 'city.weather']);
    expect((await registered('city.weather')).updated_at).toBe(updated_at);
    expect(Date.parse(again.next_poll_at ?? '') - Date.now()).toBeGreaterThan(200_000);
  });

  test('names what it holds that is no tool, and what its maker may not register', async () => {
    internet.host('api.example.com', () =>
      Response.json({
        tools: [
          WEATHER,
          { name: 'run', kind: 'code', language: 'python', code: 'x', description: 'runs' },
          { description: 'no name' },
          { ...WEATHER, name: 'leak', credentials: { authorization: 'x' } },
          { ...WEATHER, name: 'inner', url: 'https://127.0.0.1/' },
          { name: 'bare' },
          WEATHER,
        ],
      }),
    );
    await create({ name: 'city', url: 'https://api.example.com/x' }, await scopes('tools:write tools:http'));
    const source = await refresh('city');
    expect(source).toMatchObject({ status: 'ready', tool_count: 2, broken_count: 1 });
    expect(source.problems).toEqual([
      { name: 'run', reason: 'who made the source lacks tools:python' },
      { name: 'tools.2', reason: 'it has no name' },
      { name: 'leak', reason: 'credentials are given to the source, not in the manifest' },
      { name: 'bare', reason: expect.stringContaining('expected') },
      { name: 'weather', reason: 'it is listed twice' },
    ]);
    expect(await registered('city.inner')).toMatchObject({ status: 'broken' });
    expect(await namesOf('city')).toEqual(['city.weather']);
  });

  test.each([
    ['is not there', () => new Response('gone', { status: 404 }), 'the address was answered 404'],
    ['is no JSON', () => new Response('{'), 'the manifest is not JSON that can be read without loss'],
    ['is something else', () => Response.json([1]), 'it is no manifest: {"tools": [...]} was expected'],
    [
      'would be rounded',
      () => new Response('{"tools":[],"n":12345678901234567890}'),
      'the manifest is not JSON that can be read without loss',
    ],
    [
      'leads on and on',
      () => Response.redirect('https://api.example.com/x', 302),
      'the address leads on and on',
    ],
    [
      'leads inside',
      () => Response.redirect('https://10.0.0.1/x', 302),
      'the address is refused: expected a name, not an IP address',
    ],
    [
      'leads inside at its third step',
      ({ url }: Request) => Response.redirect(url.endsWith('/xxx') ? 'https://10.0.0.1/x' : `${url}x`, 307),
      'the address is refused: expected a name, not an IP address',
    ],
    [
      'leads inside without a scheme',
      () => new Response(null, { status: 308, headers: { location: '//localhost/x' } }),
      'the address is refused: expected a public name',
    ],
    [
      'leads to another scheme',
      () => new Response(null, { status: 303, headers: { location: 'http://api.example.com/x' } }),
      'the address is refused: expected https',
    ],
    [
      'is little that becomes much',
      async () => {
        const zeros = new Response(new Uint8Array(16 * 1024 * 1024)).body;
        const packed = await new Response(zeros?.pipeThrough(new CompressionStream('gzip'))).arrayBuffer();
        // What a fetch gives of an answer with this encoding.
        return new Response(new Response(packed).body?.pipeThrough(new DecompressionStream('gzip')));
      },
      'the answer is over 8388608 bytes',
    ],
    ['is too large', () => new Response(' '.repeat(8 * 1024 * 1024 + 1)), 'the answer is over 8388608 bytes'],
  ])('that %s has failed', async (_, answer, message) => {
    internet.host('api.example.com', answer);
    await create({ name: 'city', url: 'https://api.example.com/x', credentials: { authorization: 'x' } });
    expect(await refresh('city')).toMatchObject({ status: 'failed', last_error: { message } });
    expect(internet.requests.every(({ url }) => new URL(url).host === 'api.example.com')).toBe(true);
  });
});

describe('A59: a webhook', () => {
  async function signed(secret: string, body: string, { id = crypto.randomUUID(), atMs = Date.now() } = {}) {
    const timestamp = String(Math.floor(atMs / 1_000));
    const key = await crypto.subtle.importKey(
      'raw',
      fromBase64(secret.replace('whsec_', '')) ?? new Uint8Array(0),
      { name: 'HMAC', hash: 'SHA-256' },
      false,
      ['sign'],
    );
    const mac = await crypto.subtle.sign('HMAC', key, utf8(`${id}.${timestamp}.${body}`));
    return {
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': timestamp,
      'webhook-signature': `v1,AAAA v1,${toBase64(new Uint8Array(mac))}`,
    };
  }

  const manifest = (...names: string[]) =>
    JSON.stringify({
      type: 'manifest.changed',
      data: { tools: names.map((name) => ({ ...WEATHER, name, url: 'https://api.example.com/{city}' })) },
    });

  test('brings the manifest, or that it is to be fetched; only as its publisher signs it, and once', async () => {
    const source = await create({ name: 'pushed', webhook: true });
    const { webhook_secret: secret = '' } = source;
    const url = 'webhook_url' in source ? (source.webhook_url ?? '') : '';
    expect(secret).toMatch(/^whsec_/);
    expect(url.startsWith(`${ORIGIN}/v1/tool_source_webhooks/acme.pushed.`)).toBe(true);
    const path = url.slice(ORIGIN.length);
    const push = (raw: string, headers: Record<string, string>) => api('POST', path, { raw, headers });

    expect((await push(manifest('a'), await signed(secret, manifest('a')))).status).toBe(204);
    expect(await namesOf('pushed')).toEqual(['pushed.a']);
    const later = await signed(secret, manifest('a', 'b'));
    expect((await push(manifest('a', 'b'), later)).status).toBe(204);
    expect(await namesOf('pushed')).toEqual(['pushed.a', 'pushed.b']);
    // The first once more, one that was overtaken, and one of another hour.
    expect((await push(manifest('a', 'b'), later)).status).toBe(204);
    const overtaken = await signed(secret, manifest('old'), { atMs: Date.now() - 60_000 });
    expect((await push(manifest('old'), overtaken)).status).toBe(204);
    expect(await namesOf('pushed')).toEqual(['pushed.a', 'pushed.b']);
    const stale = await signed(secret, manifest('old'), { atMs: Date.now() - 3_600_000 });
    expect(problemIn(await push(manifest('old'), stale)).code).toBe('unauthenticated');
    const foreign = await signed(`whsec_${toBase64(new Uint8Array(32))}`, manifest('c'));
    expect(problemIn(await push(manifest('c'), foreign)).code).toBe('unauthenticated');
    expect(problemIn(await push(manifest('c'), later)).code).toBe('unauthenticated');
    expect((await api('POST', `${path}x`, { raw: manifest('c'), headers: later })).status).toBe(404);
    expect(await namesOf('pushed')).toEqual(['pushed.a', 'pushed.b']);
    const shown = await api('GET', '/v1/tool_sources/pushed', { token: await scopes() });
    expect(shown.text).not.toContain(secret);
    expect(shown.json).toMatchObject({ next_poll_at: null, status: 'ready', webhook_url: url });
  });

  test('without a manifest in it has the address fetched', async () => {
    let tools = [WEATHER];
    internet.host('api.example.com', () => Response.json({ tools }));
    const source = await create({ name: 'both', url: 'https://api.example.com/x', webhook: true });
    await refresh('both');
    tools = [WEATHER, { ...WEATHER, name: 'more' }];
    const body = '{"type":"tools.changed"}';
    const url = 'webhook_url' in source ? (source.webhook_url ?? '') : '';
    const headers = await signed(source.webhook_secret ?? '', body);
    expect((await api('POST', url.slice(ORIGIN.length), { raw: body, headers })).status).toBe(204);
    expect(await namesOf('both')).toEqual(['both.more', 'both.weather']);
  });
});

test('a source needs the scopes of what it brings', async () => {
  const body = { kind: 'manifest', name: 'city', url: 'https://api.example.com/x' };
  for (const scope of ['tools:write', 'tools:http', 'tools:write tools:mcp']) {
    const answer = await api('POST', '/v1/tool_sources', { token: await scopes(scope), body });
    expect(problemIn(answer).code).toBe('insufficient_scope');
  }
});
