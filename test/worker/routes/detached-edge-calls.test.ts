/** Calls that the gateway makes and nobody waits for. */
import { abortAllDurableObjects, runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type Execution, ExecutionSchema } from '../../../shared/execution.ts';
import { isTerminal } from '../../../shared/lifecycle.ts';
import { DEFAULT_IDLE_TIMEOUT_S, TERMINAL_GRACE_MS } from '../../../shared/limits.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { sessionObjectName } from '../../../worker/objects/session-name.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { STOCK_PRICE } from '../harness/example-tools.ts';
import { connectFakeHost, retireFakeHost } from '../harness/fake-host.ts';

let host: HostDouble;
let sessionId: string;
let tenants = 0;
let tenant: string;
let answers: boolean;
let asked: AbortSignal[];

const path = (rest = '') => `/v1/sessions/${sessionId}${rest}`;
const ask = async (method: string, route: string, options: ApiOptions = {}) =>
  api(method, route, { token: await tokenOf({ claims: { tenant } }), ...options });

beforeEach(async () => {
  tenants += 1;
  tenant = `detached-edge-${tenants}`;
  host = await connectFakeHost();
  sessionId = SessionSchema.parse((await ask('POST', '/v1/sessions', { body: {} })).json).session_id;
  expect((await ask('POST', '/v1/tools', { body: STOCK_PRICE })).status).toBe(201);
  answers = false;
  asked = [];
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
    const { signal } = new Request(input, init);
    asked.push(signal);
    // The other side answers in its own time: an object may not wait for what a test holds.
    while (!answers) {
      signal.throwIfAborted();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return Response.json({ price: 7 });
  });
});
afterEach(async () => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  await retireFakeHost(host);
});

const detach = (more: object = {}, options: ApiOptions = {}) =>
  ask('POST', path('/execute'), {
    body: { tool_name: 'stock-price', arguments: { symbol: 'x' }, detach: true, ...more },
    ...options,
  });

async function begin(more: object = {}, options: ApiOptions = {}): Promise<Execution> {
  const begun = await detach(more, options);
  expect(begun.status, begun.text).toBe(202);
  const execution = ExecutionSchema.parse(begun.json);
  expect(begun.headers.get('Location')).toBe(path(`/executions/${execution.execution_id}`));
  return execution;
}

const now = async ({ execution_id }: Execution) =>
  ExecutionSchema.parse((await ask('GET', path(`/executions/${execution_id}`))).json);

function ended(execution: Execution): Promise<Execution> {
  return eventually(async () => {
    const found = await now(execution);
    expect(isTerminal(found.status), found.status).toBe(true);
    return found;
  });
}

const theSession = () => env.SESSION.get(env.SESSION.idFromName(sessionObjectName(tenant, sessionId)));

describe('a detached call of the gateway', () => {
  test('is answered before it is made, and its result is there for whoever comes later', async () => {
    const begun = await begin();
    expect(begun).toMatchObject({ status: 'running', tool_name: 'stock-price', finished_at: null });
    await eventually(() => expect(asked).toHaveLength(1));
    expect((await now(begun)).status).toBe('running');
    answers = true;
    const execution = await ended(begun);
    expect(execution).toMatchObject({ status: 'succeeded', structured: { price: 7 } });
    expect(execution.receipt).not.toBeNull();
    const events = await ask('GET', path(`/executions/${begun.execution_id}/events`));
    expect(events.text).toMatch(/event: started[\s\S]*event: end/);
  });

  test('is made once for a key, however often it is asked for, and each time it is the same call', async () => {
    const headers = { 'Idempotency-Key': 'once' };
    const first = await begin({}, { headers });
    expect(await begin({}, { headers })).toMatchObject({
      execution_id: first.execution_id,
      status: 'running',
    });
    answers = true;
    await ended(first);
    expect(await begin({}, { headers })).toMatchObject({
      execution_id: first.execution_id,
      status: 'succeeded',
    });
    expect(asked).toHaveLength(1);
  });

  test('is stopped by its id, and the request with it', async () => {
    const begun = await begin();
    await eventually(() => expect(asked).toHaveLength(1));
    const stopped = await ask('POST', path('/interrupt'), { body: { execution_id: begun.execution_id } });
    expect(stopped.json).toEqual({ execution_id: begun.execution_id });
    expect((await ended(begun)).status).toBe('interrupted');
    expect(asked[0]?.aborted).toBe(true);
  });

  test('ends at its deadline', async () => {
    expect((await ended(await begin({ timeout_ms: 1_000 }))).status).toBe('timeout');
  });

  test('ends with its session', async () => {
    await begin();
    await eventually(() => expect(asked).toHaveLength(1));
    expect((await ask('DELETE', path())).status).toBe(204);
    await eventually(() => expect(asked[0]?.aborted).toBe(true));
  });

  test('whose object is gone in the middle of it is unknown at its deadline, and is not made again', async () => {
    const begun = await begin({ timeout_ms: 5_000 }, { headers: { 'Idempotency-Key': 'lost' } });
    await eventually(() => expect(asked).toHaveLength(1));
    await abortAllDurableObjects();
    expect((await now(begun)).status).toBe('running');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 5_000 + TERMINAL_GRACE_MS });
    await runDurableObjectAlarm(theSession());
    expect(await now(begun)).toMatchObject({ status: 'unknown', reason: 'end_not_seen' });
    const again = await begin({ timeout_ms: 5_000 }, { headers: { 'Idempotency-Key': 'lost' } });
    expect(again).toMatchObject({ execution_id: begun.execution_id, status: 'unknown' });
    expect(asked).toHaveLength(1);
  });

  test('keeps its session from being idle', async () => {
    const begun = await begin({ timeout_ms: 3_600_000 });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + DEFAULT_IDLE_TIMEOUT_S * 1_000 + 1_000 });
    await runDurableObjectAlarm(theSession());
    expect((await now(begun)).status).toBe('running');
    expect(SessionSchema.parse((await ask('GET', path())).json).state).toBe('running');
  });

  test('is refused at once where it would be refused when it is waited for', async () => {
    expect(problemIn(await detach({ arguments: {} })).code).toBe('invalid_request');
    expect(problemIn(await detach({ tool_name: 'nobody-has-it' })).code).toBe('tool_not_found');
    expect(asked).toEqual([]);
  });

  test('is one of sixteen of its session at most', async () => {
    for (let n = 0; n < 16; n += 1) await begin();
    expect(problemIn(await detach())).toMatchObject({ status: 429, code: 'queue_full' });
    answers = true;
    await eventually(async () => expect((await detach()).status).toBe(202));
  });
});
