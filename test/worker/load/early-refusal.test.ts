/** An isolate that is late, by the front door: what it refuses, and how little of a request it looks at for that. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { admitLoad, isShedding } from '../../../worker/load/shed-load.ts';
import { BURST_MS, FEW, WINDOW_MS } from '../../../worker/load/shedding.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn, request } from '../harness/api.ts';

const underWay: (() => void)[] = [];
let nowMs = 0;
beforeEach(() => {
  // Never back: what a test before this one has seen lies behind.
  nowMs = Math.max(nowMs, performance.now()) + 10_000;
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
});
afterEach(() => {
  for (const answered of underWay.splice(0)) answered();
  // Calm for long enough, it lets everything in again.
  for (let window = 0; window < 40; window += 1) ask(false)?.();
  vi.restoreAllMocks();
  expect(isShedding()).toBe(false);
});

/** One request of somebody else; `isLate`: whether the isolate was late at it. */
function ask(isLate: boolean): (() => void) | undefined {
  nowMs += WINDOW_MS;
  return admitLoad(
    { tenant: 'somebody', subject: 'else' },
    isLate ? -1 : Number.POSITIVE_INFINITY,
    () => undefined,
  );
}

/** More is under way than the isolate can do, for longer than a burst. */
function flood(tenant: string): void {
  const asking = { tenant, subject: 'alice' };
  for (let each = 0; each < 4 * FEW; each += 1) {
    const answered = admitLoad(asking, -1, () => undefined);
    if (answered !== undefined) underWay.push(answered);
  }
  for (let ms = 0; ms <= BURST_MS; ms += WINDOW_MS) {
    const answered = ask(true);
    if (answered !== undefined) underWay.push(answered);
    admitLoad(asking, -1, () => undefined);
  }
  expect(isShedding()).toBe(true);
}

test('it refuses who asks for more than a share, without a look at the route or the body', async () => {
  const token = await tokenOf({ claims: { tenant: 'flooding', sub: 'alice' } });
  expect((await api('GET', '/v1/sessions', { token })).status).toBe(200);
  flood('flooding');
  // Whoever waited for its end would wait for ever.
  const endless = new ReadableStream<Uint8Array>();
  const told = vi.spyOn(console, 'log');
  for (const [method, path] of [
    ['GET', '/v1/sessions'],
    ['POST', '/v1/no-such-route'],
  ] as const) {
    const answer = await api(method, path, { token, ...(method === 'POST' ? { raw: endless } : {}) });
    expect(problemIn(answer)).toMatchObject({ code: 'overloaded', retryable: true });
    expect(answer.status).toBe(503);
    expect(Number(answer.headers.get('Retry-After'))).toBeGreaterThan(0);
    expect(answer.headers.get('Request-Id')).toMatch(/^req_/);
    expect(answer.headers.get('X-Content-Type-Options')).toBe('nosniff');
    expect(answer.headers.get('Cache-Control')).toBe('no-store');
  }
  expect(told.mock.calls.flat().join('')).not.toContain(token);
});

test('it says the id that its client gave, as any answer does', async () => {
  const token = await tokenOf({ claims: { tenant: 'tracing', sub: 'alice' } });
  await api('GET', '/v1/sessions', { token });
  flood('tracing');
  const id = `req_${'a'.repeat(22)}`;
  const answer = await request('GET', '/v1/sessions', { token, headers: { 'Request-Id': id } });
  expect([answer.status, answer.headers.get('Request-Id')]).toEqual([503, id]);
});

test('a token that is not known yet is verified, and one that does not verify is no reason to be refused sooner', async () => {
  flood('flooding');
  expect((await api('GET', '/v1/sessions', { token: 'a.b.c' })).status).toBe(401);
  const token = await tokenOf({ claims: { tenant: 'unknown-yet', sub: 'alice' } });
  // Who asks for little is served while others flood.
  expect((await api('GET', '/v1/sessions', { token })).status).toBe(200);
  expect((await api('GET', '/v1/sessions', { token })).status).toBe(200);
  expect((await api('GET', '/healthz')).status).toBe(200);
});

test('while it is not late nothing is refused', async () => {
  const token = await tokenOf({ claims: { tenant: 'calm', sub: 'alice' } });
  for (let each = 0; each < 3; each += 1) {
    expect((await api('GET', '/v1/sessions', { token })).status).toBe(200);
  }
  expect(isShedding()).toBe(false);
});
