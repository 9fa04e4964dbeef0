import { listDurableObjectIds } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { MAX_BODY_BYTES } from '../../../shared/limits.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, api, problemIn, request } from '../harness/api.ts';
import { wokenObjects } from '../harness/traces.ts';
import { OPERATOR_TOKEN, ORIGIN } from '../issuer-bindings.ts';

/** A route that reads a body and, with a valid one, gets as far as the pool: no host is there. */
const CREATE = '/v1/sessions';
const CREATED = 503;

async function create(body: unknown, headers: HeadersInit = {}): Promise<ApiAnswer> {
  return api('POST', CREATE, { token: await tokenOf(), body, headers });
}

async function createRaw(raw: BodyInit, type = 'application/json'): Promise<ApiAnswer> {
  return api('POST', CREATE, { token: await tokenOf(), raw, headers: { 'Content-Type': type } });
}

function pathsIn(answer: ApiAnswer): string[] {
  return (problemIn(answer).violations ?? []).map((violation) => violation.path);
}

describe('A31: a body that sets', () => {
  test.each([
    ['its tenant', { tenant: 'globex' }, 'body.tenant'],
    ['its owner', { owner: { tenant: 'globex', subject: 'bob' } }, 'body.owner'],
    ['its host', { host_id: 'hst_AAAAAAAAAAAAAAAAAAAAAA' }, 'body.host_id'],
    ['its user', { uid: 0 }, 'body.uid'],
    ['annotations', { annotations: { 'dev.gvisor.spec': 'x' } }, 'body.annotations'],
    ['an epoch', { epoch: 7 }, 'body.epoch'],
    ['an image by tag', { image: 'python:latest' }, 'body.image'],
    ['an image by path', { image: '../python' }, 'body.image'],
    ['a limit that no sandbox has', { limits: { capabilities: 'all' } }, 'body.limits.capabilities'],
    ['a class that is not there', { limits: { class: 'huge' } }, 'body.limits.class'],
    ['a limit over the protocol', { limits: { cpus: 1e6 } }, 'body.limits.cpus'],
    ['a variable with a bad name', { env: { 'A=B': 'x' } }, 'body.env.A=B'],
    ['a pool by path', { pool: '../default' }, 'body.pool'],
    ['a pool that this edge does not have', { pool: 'elsewhere' }, 'body.pool'],
  ])('%s is refused, and the field is named', async (_name, body, path) => {
    const answer = await create(body);
    expect(answer.status).toBe(400);
    expect(pathsIn(answer)).toEqual([path]);
    expect(await listDurableObjectIds(env.SESSION)).toEqual([]);
  });

  test.each([
    ['nothing', {}],
    [
      'limits within the schema',
      { limits: { cpus: 2 }, image: 'python', metadata: { tenant: 'x', uid: '0' } },
    ],
    ['a class', { limits: { class: 'large', memory_bytes: 1024 ** 3 } }],
    ['an image by digest', { image: `sha256:${'0'.repeat(64)}` }],
  ])('%s is taken', async (_name, body) => {
    expect([CREATED, 422]).toContain((await create(body)).status);
  });

  test('a size above its class is refused, and the field is named', async () => {
    const answer = await create({ limits: { class: 'small', cpus: 2 } });
    expect(answer.status).toBe(422);
    expect(problemIn(answer)).toMatchObject({ code: 'limits_exceeded' });
    expect(pathsIn(answer)).toEqual(['body.limits.cpus']);
  });

  test('names every wrong field of an execution at once', async () => {
    const body = { tool_name: 'shell', arguments: {}, timeout_ms: 0, tenant: 'x', detach: 'yes' };
    const answer = await api('POST', '/v1/sessions/ses_x/execute', { token: await tokenOf(), body });
    expect(answer.status).toBe(400);
    expect(pathsIn(answer).toSorted()).toEqual(['body.detach', 'body.tenant', 'body.timeout_ms']);
  });
});

describe('the arguments of a call', () => {
  async function execute(body: unknown, scope?: string) {
    const token = await tokenOf(scope === undefined ? {} : { claims: { scope } });
    return api('POST', '/v1/sessions/ses_x/execute', { token, body });
  }

  test.each([
    ['missing', { tool_name: 'python', arguments: {} }, 'body.arguments.code', 'string'],
    ['of another type', { tool_name: 'python', arguments: { code: 7 } }, 'body.arguments.code', 'string'],
    [
      'unknown',
      { tool_name: 'shell', arguments: { command: 'x', cwd: '/' } },
      'body.arguments.cwd',
      'no field',
    ],
    [
      'of no operation',
      { tool_name: 'file', arguments: { operation: 'chmod' } },
      'body.arguments.operation',
      'read',
    ],
    [
      'too long',
      { tool_name: 'python', arguments: { code: 'x'.repeat(1_048_577) } },
      'body.arguments.code',
      '1048576',
    ],
    [
      'a path with NUL',
      { tool_name: 'file', arguments: { operation: 'read', path: 'a\0' } },
      'body.arguments.path',
      'NUL',
    ],
  ])('that are %s are refused before the session is looked at', async (_name, body, path, expected) => {
    const answer = await execute(body);
    expect(answer.status).toBe(400);
    const [violation] = problemIn(answer).violations ?? [];
    expect(violation?.path).toBe(path);
    expect(violation?.expected).toContain(expected);
  });

  test('that are right leave only the session to be refused', async () => {
    expect((await execute({ tool_name: 'python', arguments: { code: '1' } })).status).toBe(404);
  });

  test('of an unknown tool are answered with the tools that the caller may call', async () => {
    const answer = await execute({ tool_name: 'execute_pythn', arguments: {} }, 'tools:python tools:file');
    expect(answer.status).toBe(404);
    expect(problemIn(answer)).toMatchObject({
      code: 'tool_not_found',
      detail: expect.stringContaining('python, file'),
    });
    expect(problemIn(answer).detail).not.toContain('shell');
  });

  test('are not both streamed and detached', async () => {
    const call = { tool_name: 'python', arguments: { code: '1' }, stream: true, detach: true };
    const answer = await api('POST', await someSession(), { token: await tokenOf(), body: call });
    expect(answer.status).toBe(400);
    expect(pathsIn(answer)).toEqual(['body.detach']);
  });
});

/** A session id of the tenant that no session has. */
async function someSession(): Promise<string> {
  const { newSessionId } = await import('../../../shared/ids.ts');
  const { configurationOf } = await import('../../../worker/configuration.ts');
  return `/v1/sessions/${await newSessionId((await configurationOf(env)).tagKey, 'acme')}/execute`;
}

describe('A34: a path', () => {
  test.each([
    '/v1/sessions/..%2f..%2fetc%2fpasswd',
    '/v1/sessions/%00',
    '/v1/sessions/%2e%2e%2ffoo',
    '/v1/sessions/ses_%E2%80%AE',
    '/v1/sessions/sеs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',
    '/v1/sessions/%ff%fe',
    '/v1/sessions/%',
    `/v1/sessions/${'a'.repeat(8_000)}`,
    '/v1//sessions',
    '//v1/sessions',
    '/v1/sessions/',
    '/V1/sessions',
    '/v1/sessions/__proto__',
    '/v1/sessions/a/../b',
    '/v1/sessions;tenant=globex',
    '/v1/sessions/x/executions/..%2f..',
    '/v1/__proto__',
    '/constructor',
  ])('%s leads nowhere', async (path) => {
    const answer = await api('GET', path, { token: await tokenOf() });
    expect([400, 404]).toContain(answer.status);
    expect(await listDurableObjectIds(env.SESSION)).toEqual([]);
  });

  test.each([
    ['X-HTTP-Method-Override', {}],
    ['X-Method-Override', {}],
    ['X-HTTP-Method', {}],
  ])('keeps its method whatever %s says', async (name) => {
    const answer = await api('GET', CREATE, { token: await tokenOf(), headers: { [name]: 'DELETE' } });
    expect(answer.status).toBe(200);
  });

  test('with a parameter that the route does not have is refused by name', async () => {
    const answer = await api('GET', `${CREATE}?_method=DELETE`, { token: await tokenOf() });
    expect(answer.status).toBe(400);
    expect(pathsIn(answer)).toEqual(['query._method']);
    const twice = await api('GET', `${CREATE}?limit=1&limit=2`, { token: await tokenOf() });
    expect(pathsIn(twice)).toEqual(['query.limit']);
  });

  test('that is right is found', async () => {
    expect((await api('GET', `${CREATE}?limit=7`, { token: await tokenOf() })).status).toBe(200);
  });

  test.each([
    ['PUT', CREATE, 'POST, GET, HEAD'],
    ['PUT', '/v1/sessions/x', 'GET, HEAD, PATCH, DELETE'],
    ['GET', '/v1/execute', 'POST'],
    ['POST', '/v1/links/control', 'GET, HEAD'],
    ['OPTIONS', '/v1/tools', 'GET, HEAD, POST'],
  ])('refuses %s %s and says what it has', async (method, path, allowed) => {
    const answer = await api(method, path, { token: await tokenOf() });
    expect(answer.status).toBe(405);
    expect(answer.headers.get('Allow')).toBe(allowed);
    expect(problemIn(answer).code).toBe('method_not_allowed');
  });
});

describe('A36: a request', () => {
  test.each(['https://evil.test', 'null', `${ORIGIN}.evil.test`, 'http://127.0.0.1:9999'])(
    'of a page of %s is refused',
    async (origin) => {
      const token = await tokenOf({ claims: { tenant: 'of-a-page' } });
      const awake = await wokenObjects();
      for (const method of ['GET', 'POST', 'OPTIONS']) {
        const body = method === 'POST' ? { body: {} } : {};
        const answer = await api(method, CREATE, { token, headers: { Origin: origin }, ...body });
        expect(answer.status, method).toBe(403);
        expect(answer.headers.get('Access-Control-Allow-Origin')).toBeNull();
      }
      expect(await wokenObjects()).toEqual(awake);
    },
  );

  test('of a page of this edge is served', async () => {
    const headers = { Origin: ORIGIN };
    expect((await api('GET', CREATE, { token: await tokenOf(), headers })).status).toBe(200);
    expect((await create({}, headers)).status).toBe(CREATED);
  });

  test('with another Host or X-Forwarded-* is answered with the own origin only', async () => {
    const headers = {
      Host: 'evil.test',
      'X-Forwarded-Host': 'evil.test',
      'X-Forwarded-Proto': 'gopher',
      'X-Forwarded-For': '127.0.0.1',
      Forwarded: 'host=evil.test',
      'X-Original-URL': '/v1/hosts',
    };
    const refused = await api('GET', CREATE, { headers });
    expect(refused.headers.get('WWW-Authenticate')).toContain(`resource_metadata="${ORIGIN}/`);
    const metadata = await api('GET', '/.well-known/oauth-protected-resource', { headers });
    expect(metadata.json).toMatchObject({ resource: ORIGIN });
    expect(refused.text + metadata.text).not.toContain('evil.test');
  });
});

describe('A37: a body', () => {
  test.each([
    ['a batch', '[{"image":"python"},{"image":"python"}]'],
    ['depth 10,000', `{"metadata":${'{"a":'.repeat(10_000)}1${'}'.repeat(10_001)}`],
    ['depth 10,000 of arrays', '['.repeat(10_000)],
    ['__proto__', '{"__proto__":{"image":"python"}}'],
    ['an escaped __proto__', '{"env":{"__pro\\u0074o__":"x"}}'],
    ['a key twice', '{"image":"python","image":"node"}'],
    ['an integer that a double would round', '{"idle_timeout_s":9007199254740993}'],
    ['a number beyond every double', '{"idle_timeout_s":1e999}'],
    ['200,000 values', `{"metadata":[${'0,'.repeat(200_000)}0]}`],
    ['text', '"image"'],
    ['null', 'null'],
  ])('with %s is refused', async (_name, raw) => {
    const answer = await createRaw(raw);
    expect(answer.status).toBe(400);
    expect(['invalid_request', 'invalid_json']).toContain(problemIn(answer).code);
    expect(await listDurableObjectIds(env.SESSION)).toEqual([]);
  });

  test.each([
    ['cut', '{"image":"python"', 17, 'expected "," or "}"'],
    ['with a trailing comma', '{"image":"python",}', 18, 'key in double quotes'],
    ['with single quotes', "{'image':1}", 1, 'key in double quotes'],
    ['with NaN', '{"a":\n NaN}', 7, 'JSON value'],
    ['with a leading zero', '{"a":01}', 6, '"," or "}"'],
    ['with a line break in a string', '{"a":"x\ny"}', 7, 'character or escape'],
    ['with a bad escape', '{"a":"\\x41"}', 6, 'character or escape'],
    ['with more after its end', '{} {}', 3, 'end of the text'],
    ['with a comment', '/* x */ {}', 0, 'JSON value'],
  ])('that is not JSON, %s, is refused with the place', async (_name, raw, offset, expected) => {
    const answer = await createRaw(raw);
    expect(problemIn(answer)).toMatchObject({
      status: 400,
      code: 'invalid_json',
      detail: expect.stringContaining(`offset ${offset} `),
    });
    expect(problemIn(answer).detail).toContain(expected);
  });

  test('gives line and column of the fault', async () => {
    expect(problemIn(await createRaw('{\n  "image": oops }')).detail).toContain('line 2, column 12');
  });

  test('that is not UTF-8 is not JSON', async () => {
    const answer = await createRaw(new Uint8Array([0x7b, 0xff, 0x7d]));
    expect(problemIn(answer).code).toBe('invalid_json');
  });

  test.each([
    ['declared', true],
    ['streamed without a length', false],
  ])('of 100 MB is refused without being kept, %s', async (_name, declared) => {
    const chunk = new Uint8Array(1_048_576);
    let pulled = 0;
    const stream = new ReadableStream<Uint8Array>({
      pull(controller) {
        pulled += 1;
        controller.enqueue(chunk);
        if (pulled === 100) controller.close();
      },
    });
    const headers = { 'Content-Type': 'application/json' };
    const answer = await api('POST', CREATE, {
      token: await tokenOf(),
      headers: declared ? { ...headers, 'Content-Length': '104857600' } : headers,
      raw: declared ? new Uint8Array(MAX_BODY_BYTES + 1) : stream,
    });
    expect(problemIn(answer)).toMatchObject({ status: 413, code: 'payload_too_large' });
    expect(pulled).toBeLessThan(10);
  });

  test.each([
    ['a form', 'application/x-www-form-urlencoded'],
    ['text', 'text/plain'],
    ['JSON in another charset', 'application/json; charset=utf-16'],
    ['something like JSON', 'application/jsonx'],
  ])('that is %s is not taken', async (_name, type) => {
    const answer = await createRaw('{}', type);
    expect(problemIn(answer)).toMatchObject({ status: 415, code: 'unsupported_media_type' });
  });

  test('that is compressed is not taken', async () => {
    expect((await create({}, { 'Content-Encoding': 'gzip' })).status).toBe(415);
  });

  test.each([
    ['plain JSON', '{"idle_timeout_s":60}', 'application/json'],
    ['JSON with its charset', '{"idle_timeout_s":60}', 'Application/JSON; charset="UTF-8"'],
    ['nothing at all', '', 'application/json'],
    ['the largest safe integer in metadata', '{"metadata":{"n":"9007199254740993"}}', 'application/json'],
  ])('that is %s is taken', async (_name, raw, type) => {
    expect((await createRaw(raw, type)).status).toBe(CREATED);
  });
});

describe('every answer', () => {
  test.each([
    ['GET', '/healthz', 200],
    ['GET', '/nowhere', 404],
    ['GET', CREATE, 401],
    ['PUT', CREATE, 405],
  ])('to %s %s carries an id, and is neither sniffed nor stored', async (method, path, status) => {
    const answer = await api(method, path);
    expect(answer.status).toBe(status);
    expect(answer.headers.get('Request-Id')).toMatch(/^req_[A-Za-z0-9_-]{22}$/);
    expect(answer.headers.get('X-Content-Type-Options')).toBe('nosniff');
    expect(answer.headers.get('Cache-Control')).toBe('no-store');
    if (status >= 400) expect(problemIn(answer).request_id).toBe(answer.headers.get('Request-Id'));
  });

  test('carries the id that the caller gave, if it is one', async () => {
    const given = 'req_AAAAAAAAAAAAAAAAAAAAAA';
    const kept = await api('GET', '/healthz', { headers: { 'Request-Id': given } });
    expect(kept.headers.get('Request-Id')).toBe(given);
    for (const bad of ['x', 'req_short', `${given}x`, 'req_AAAAAAAAAAAAAAAAAAAAA"']) {
      const other = await api('GET', '/healthz', { headers: { 'Request-Id': bad } });
      expect(other.headers.get('Request-Id')).not.toBe(bad);
    }
  });

  test('to HEAD has the headers of GET and no body', async () => {
    const answer = await request('HEAD', '/healthz');
    expect(answer.status).toBe(200);
    expect(await answer.text()).toBe('');
  });
});

describe('A58: a token', () => {
  test.each([
    ['POST', '/v1/enrollment-tokens'],
    ['GET', '/v1/hosts'],
  ])('of a tenant is refused at %s %s', async (method, path) => {
    const awake = await wokenObjects();
    const body = method === 'POST' ? { body: {} } : {};
    const answer = await api(method, path, { token: await tokenOf(), ...body });
    expect(problemIn(answer)).toMatchObject({ status: 403, code: 'forbidden' });
    expect(await wokenObjects()).toEqual(awake);
  });

  test.each([
    ['GET', CREATE, {}],
    ['GET', '/v1/tools', {}],
    ['POST', CREATE, { body: {} }],
    ['POST', '/v1/execute', { body: { tool_name: 'python', arguments: { code: '1' } } }],
  ])('of the operator is refused at %s %s', async (method, path, body) => {
    const awake = await wokenObjects();
    const answer = await api(method, path, { token: OPERATOR_TOKEN, ...body });
    expect(problemIn(answer)).toMatchObject({ status: 403, code: 'forbidden' });
    expect(await wokenObjects()).toEqual(awake);
  });

  test('of enrolment opens no API, and no other one enrols a host or opens its link', async () => {
    const made = await api('POST', '/v1/enrollment-tokens', { token: OPERATOR_TOKEN, body: {} });
    const { enrollment_token: enrolment } = z.object({ enrollment_token: z.string() }).parse(made.json);
    for (const path of [CREATE, '/v1/hosts']) {
      expect((await api('GET', path, { token: enrolment })).status, path).toBe(401);
    }
    const headers = { Upgrade: 'websocket' };
    for (const token of [await tokenOf(), OPERATOR_TOKEN, enrolment]) {
      expect((await api('GET', '/v1/links/control', { token, headers })).status).toBe(401);
    }
  });

  test('of the operator, almost, is no token', async () => {
    for (const token of [OPERATOR_TOKEN.slice(1), `${OPERATOR_TOKEN}x`, OPERATOR_TOKEN.toUpperCase()]) {
      expect((await api('GET', '/v1/hosts', { token })).status).toBe(401);
    }
  });

  test('of each kind is accepted at its own routes', async () => {
    expect((await api('GET', '/v1/hosts', { token: OPERATOR_TOKEN })).json).toEqual({ hosts: [] });
    const created = await api('POST', '/v1/enrollment-tokens', { token: OPERATOR_TOKEN, body: {} });
    expect(created.status).toBe(201);
    const tools = await api('GET', '/v1/tools', {
      token: await tokenOf({ claims: { scope: 'tools:file' } }),
    });
    expect(tools.json).toMatchObject({ tools: [{ name: 'file', input_schema: { type: 'object' } }] });
  });
});

describe('an issuer whose keys cannot be fetched', () => {
  test('makes its tokens a retryable 503, not a refusal of the token', async () => {
    vi.spyOn(console, 'warn').mockImplementation(() => {});
    const fetched = vi.spyOn(globalThis, 'fetch').mockRejectedValue(new TypeError('down'));
    const token = await tokenOf({ key: 'remote', claims: { iss: 'https://remote.test' } });
    const answer = await api('GET', CREATE, { token });
    expect(problemIn(answer)).toMatchObject({ status: 503, code: 'issuer_unavailable', retryable: true });
    expect(answer.headers.get('Retry-After')).toBe('5');
    expect(fetched).toHaveBeenCalledTimes(1);
    vi.restoreAllMocks();
  });
});

describe('the request rate of a tenant', () => {
  const limit = Number(env.TENANT_REQUESTS_PER_MINUTE);

  test('is told with every answer to a known caller, refused ones too', async () => {
    const token = await tokenOf({ claims: { tenant: 'told' } });
    const first = await api('GET', CREATE, { token });
    const second = await api('GET', `${CREATE}?limit=x`, { token });
    expect(second.status).toBe(400);
    expect(first.headers.get('RateLimit-Limit')).toBe(String(limit));
    const remaining = [first, second].map((answer) => Number(answer.headers.get('RateLimit-Remaining')));
    expect(remaining).toEqual([limit - 1, limit - 2]);
    expect(Number(first.headers.get('RateLimit-Reset'))).toBeGreaterThan(0);
    expect(first.headers.get('RateLimit-Policy')).toBe(`"tenant";q=${limit};w=60`);
    expect(first.headers.get('RateLimit')).toMatch(/^"tenant";r=\d+;t=\d+$/);
    const scopeless = await tokenOf({ claims: { tenant: 'told', scope: '' } });
    expect((await api('GET', CREATE, { token: scopeless })).headers.get('RateLimit-Limit')).toBe(
      String(limit),
    );
  });

  test('ends in 429 with the time to wait, and leaves other tenants alone', async () => {
    const token = await tokenOf({ claims: { tenant: 'hasty' } });
    let refused: Response | undefined;
    let accepted = 0;
    while (refused === undefined && accepted <= limit * 2) {
      const answers = await Promise.all(
        Array.from({ length: 50 }, () => request('GET', '/v1/tools?limit=x', { token })),
      );
      for (const answer of answers) {
        if (answer.status === 429) refused = answer;
        else accepted += 1;
        await answer.arrayBuffer();
      }
    }
    expect(refused?.status).toBe(429);
    expect(accepted).toBeGreaterThanOrEqual(limit * 0.9);
    expect(Number(refused?.headers.get('Retry-After'))).toBeGreaterThan(0);
    expect(refused?.headers.get('RateLimit-Remaining')).toBe('0');
    const other = await api('GET', '/v1/tools', { token: await tokenOf({ claims: { tenant: 'calm' } }) });
    expect(other.status).toBe(200);
  });
});
