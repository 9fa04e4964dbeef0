import { createExecutionContext } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { SessionSchema } from '../../../shared/session.ts';
import { createApp } from '../../../worker/app.ts';
import type { MetricsSink } from '../../../worker/env.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { ORIGIN } from '../issuer-bindings.ts';

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const REQUEST_ID = 'req_CvdlGRbNQ92ESOshHIAxnA';
const traceparent = `00-${TRACE_ID}-b7ad6b7169203331-01`;

afterEach(() => vi.restoreAllMocks());

type Point = Parameters<MetricsSink['writeDataPoint']>[0];

/** The gateway with both ways to tell switched on. */
async function observed(path: string, init: RequestInit = {}) {
  const points: Point[] = [];
  const lines: Record<string, unknown>[] = [];
  vi.spyOn(console, 'log').mockImplementation((line: string) => void lines.push(JSON.parse(line)));
  const bindings = {
    ...env,
    REQUEST_LOG: 'on',
    METRICS: { writeDataPoint: (point: Point) => void points.push(point) },
  };
  const response = await createApp().fetch(
    new Request(`${ORIGIN}${path}`, init),
    bindings,
    createExecutionContext(),
  );
  vi.restoreAllMocks();
  return { response, points, lines: lines.filter(({ event }) => event === 'request') };
}

describe('a request', () => {
  test('is told with its operation, its caller and its trace, and with nothing that a caller chooses', async () => {
    const authorization = `Bearer ${await tokenOf()}`;
    const { response, points, lines } = await observed('/v1/sessions?limit=7', {
      headers: { authorization, traceparent },
    });
    expect(response.headers.get('Request-Id')).toBe(REQUEST_ID);
    expect(lines).toMatchObject([
      { request_id: REQUEST_ID, trace_id: TRACE_ID, operation: 'listSessions', status: 200, tenant: 'acme' },
    ]);
    expect(points).toMatchObject([{ indexes: ['listSessions'], blobs: ['listSessions', 'GET', '200', ''] }]);
    expect(JSON.stringify(lines)).not.toContain(authorization);
  });

  test('that was refused is told with the code, and one to no route as such', async () => {
    const refused = await observed('/v1/sessions/nothing');
    expect(refused.points[0]?.blobs).toEqual(['getSession', 'GET', '401', 'unauthenticated']);
    const lost = await observed('/v1/\u202e<script>%0d%0aX: y');
    expect(lost.points[0]?.blobs).toEqual(['none', 'GET', '404', '']);
    expect(JSON.stringify(lost.lines)).not.toContain('script');
  });
});

describe('A60: line breaks and escapes', () => {
  const HOSTILE = 'a\r\nX-Evil: 1\u001b[2J\u2028b';

  test('in arguments, metadata and names of tools come to no header, and every line of the log is one', async () => {
    const spies = (['log', 'warn', 'error'] as const).map((name) =>
      vi.spyOn(console, name).mockImplementation(() => {}),
    );
    const token = await tokenOf();
    const bodies: [string, unknown][] = [
      ['/v1/sessions', { metadata: { [HOSTILE]: HOSTILE }, image: HOSTILE }],
      ['/v1/execute', { tool_name: HOSTILE, arguments: { [HOSTILE]: HOSTILE } }],
      ['/v1/tools', { name: HOSTILE, description: HOSTILE, kind: HOSTILE }],
      ['/v1/workflows', { tasks: { [HOSTILE]: { tool_name: 'shell', arguments: {} } } }],
    ];
    for (const [path, body] of bodies) {
      const answer = await api('POST', path, { token, body });
      expect(answer.status).toBeGreaterThanOrEqual(400);
      expect(answer.headers.has('X-Evil')).toBe(false);
      for (const [, value] of answer.headers) expect(value).toMatch(/^[\x20-\x7e]*$/);
    }
    const lines = spies.flatMap((spy) => spy.mock.calls.map(([line]) => String(line)));
    vi.restoreAllMocks();
    for (const line of lines) {
      expect(Array.from(line).filter((character) => character < ' ')).toEqual([]);
      expect(JSON.parse(line)).toHaveProperty('event');
    }
  });

  test('in a token’s claims are refused, and its twin without them is not', async () => {
    const refused = await api('GET', '/v1/sessions', { token: await tokenOf({ claims: { sub: HOSTILE } }) });
    expect(refused.status).toBe(401);
    expect(refused.headers.get('WWW-Authenticate')).toMatch(/^[\x20-\x7e]*$/);
    expect(
      (await api('GET', '/v1/sessions', { token: await tokenOf({ claims: { sub: 'a b' } }) })).status,
    ).toBe(200);
  });

  test('as arguments of a call reach the program as they are', async () => {
    const host = await connectFakeHost();
    const token = await tokenOf();
    const body = { tool_name: 'shell', arguments: { command: HOSTILE } };
    const answer = await api('POST', '/v1/execute', { token, body });
    expect(answer.json).toMatchObject({ stdout: HOSTILE });
    host.close();
  });
});

describe('the trace of a call', () => {
  let host: HostDouble;
  beforeAll(async () => {
    host = await connectFakeHost();
    host.protocol = 2;
  });
  afterAll(() => host.close());

  test('goes with it to a host that takes it', async () => {
    const token = await tokenOf();
    const created = await api('POST', '/v1/sessions', { token, body: {} });
    const { session_id: sessionId } = SessionSchema.parse(created.json);
    await api('POST', `/v1/sessions/${sessionId}/execute`, {
      token,
      headers: { traceparent },
      body: { tool_name: 'shell', arguments: { command: 'x' } },
    });
    const named = host.commands
      .filter(({ claims }) => claims.act === 'execute')
      .map(({ requestId }) => requestId);
    expect(named).toEqual([REQUEST_ID]);
  });

  test('stays at the edge where its host is of a former version', async () => {
    host.protocol = 1;
    const token = await tokenOf();
    const created = await api('POST', '/v1/sessions', { token, body: {} });
    const { session_id: sessionId } = SessionSchema.parse(created.json);
    await api('POST', `/v1/sessions/${sessionId}/execute`, {
      token,
      headers: { traceparent },
      body: { tool_name: 'shell', arguments: { command: 'x' } },
    });
    const commands = host.commands.filter(
      ({ claims }) => claims.act === 'execute' && claims.sid === sessionId,
    );
    expect(commands.map(({ requestId }) => requestId)).toEqual([undefined]);
  });
});

test('an edge whose objects answer is ready, and is asked at most every five seconds', async () => {
  const asked = vi.spyOn(env.AUDIT, 'getByName');
  for (let n = 0; n < 20; n += 1) expect((await api('GET', '/readyz')).json).toEqual({ status: 'ready' });
  expect(asked.mock.calls.length).toBeLessThanOrEqual(1);
});

test('an edge whose objects do not answer is not ready', async () => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 10_000 });
  vi.spyOn(env.AUDIT, 'getByName').mockImplementation(() => {
    throw Object.assign(new Error('too much'), { overloaded: true });
  });
  expect((await api('GET', '/readyz')).status).toBe(503);
  vi.useRealTimers();
});
