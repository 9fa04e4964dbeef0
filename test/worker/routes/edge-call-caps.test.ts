/** How much a session keeps of the calls that the gateway made for it: rows as former calls left them, then one call more. */
import { evictDurableObject, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type Execution, ExecutionSchema } from '../../../shared/execution.ts';
import { MAX_KEYED_EXECUTIONS } from '../../../shared/limits.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { sessionObjectName } from '../../../worker/objects/session-name.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn } from '../harness/api.ts';
import { STOCK_PRICE } from '../harness/example-tools.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

const UNKEYED_KEPT = 500;
const MIB = 1024 * 1024;
const MAX_CONTENT_BYTES = 128 * MIB;
/** The oldest are let go with every sixteenth call. */
const BATCH = 16;
const DAY_MS = 86_400_000;

let host: HostDouble;
let tenants = 0;
let tenant: string;
let sessionId: string;
let template: Execution;

const ask = async (method: string, path: string, options: ApiOptions = {}) =>
  api(method, path, { token: await tokenOf({ claims: { tenant } }), ...options });

beforeEach(async () => {
  tenants += 1;
  tenant = `capped-${tenants}`;
  host = await connectFakeHost();
  sessionId = SessionSchema.parse((await ask('POST', '/v1/sessions', { body: {} })).json).session_id;
  expect((await ask('POST', '/v1/tools', { body: STOCK_PRICE })).status).toBe(201);
  vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ price: 7 }));
  template = await price();
});
afterEach(() => {
  vi.restoreAllMocks();
  expect(host.failures).toEqual([]);
  host.close();
});

const body = { tool_name: 'stock-price', arguments: { symbol: 'acme' } };

async function price(options: ApiOptions = {}): Promise<Execution> {
  const answer = await ask('POST', `/v1/sessions/${sessionId}/execute`, { body, ...options });
  expect(answer.status, answer.text).toBe(200);
  return ExecutionSchema.parse(answer.json);
}

const objectStub = () => env.SESSION.get(env.SESSION.idFromName(sessionObjectName(tenant, sessionId)));
const idOf = (number: number) => `exe_${String(number).padStart(22, '0')}`;
const found = (number: number) => ask('GET', `/v1/sessions/${sessionId}/executions/${idOf(number)}`);

/** Calls with the ids 1 to `count`, in this order, that ended as the first one did. */
async function leave(count: number, { keyed, contentBytes }: { keyed: boolean; contentBytes: number }) {
  await runInDurableObject(objectStub(), (_object, { storage }) => {
    const nowMs = Date.now();
    storage.sql.exec(
      `WITH RECURSIVE number (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM number WHERE x < ?1)
       INSERT INTO edge_call (executionId, afterN, idempotencyKey, fingerprint, deadlineAtMs, execution, endedAtMs, contentBytes)
       SELECT printf('exe_%022d', x), 0, CASE WHEN ?2 THEN 'key-' || x END, 'another', ?3,
         json_set(?4, '$.execution_id', printf('exe_%022d', x)), ?5, ?6 FROM number`,
      count,
      keyed ? 1 : 0,
      nowMs + DAY_MS,
      JSON.stringify(template),
      nowMs,
      contentBytes,
    );
  });
  // What is in memory of them is made of the rows.
  await evictDurableObject(objectStub());
}

async function kept(): Promise<number> {
  return runInDurableObject(objectStub(), (_object, { storage }) =>
    Number(storage.sql.exec('SELECT COUNT(*) AS count FROM edge_call').one().count),
  );
}

async function callUntilPruned(): Promise<void> {
  for (let call = 0; call < BATCH; call += 1) await price();
}

test('of calls without a key the newest 500 are kept', async () => {
  await leave(UNKEYED_KEPT + 100, { keyed: false, contentBytes: 0 });
  await callUntilPruned();
  expect(await kept()).toBeLessThanOrEqual(UNKEYED_KEPT + BATCH);
  expect(problemIn(await found(1)).code).toBe('not_found');
  expect((await found(UNKEYED_KEPT + 100)).status).toBe(200);
});

test('calls with a key are kept for a day beyond that, up to 20,000 of them, the newest', async () => {
  expect(MAX_KEYED_EXECUTIONS).toBe(20_000);
  const many = MAX_KEYED_EXECUTIONS + UNKEYED_KEPT + 100;
  await leave(many, { keyed: true, contentBytes: 0 });
  const headers = { 'Idempotency-Key': 'mine' };
  const mine = await price({ headers });
  await callUntilPruned();
  const count = await kept();
  expect(count).toBeLessThanOrEqual(MAX_KEYED_EXECUTIONS + UNKEYED_KEPT + BATCH);
  expect(count).toBeGreaterThanOrEqual(MAX_KEYED_EXECUTIONS);
  expect(problemIn(await found(1)).code).toBe('not_found');
  // One that is kept still answers for its key: nothing runs a second time.
  expect((await found(many)).status).toBe(200);
  expect((await price({ headers })).execution_id).toBe(mine.execution_id);
});

test('what they gave is kept up to 128 MiB: that of the oldest goes, and how they ended stays', async () => {
  const each = MIB / 4;
  const fits = MAX_CONTENT_BYTES / each;
  await leave(fits + 3, { keyed: false, contentBytes: each });
  await price();
  const [first, fourth, last] = [await found(1), await found(4), await found(fits + 3)];
  expect(ExecutionSchema.parse(first.json)).toMatchObject({
    status: 'succeeded',
    structured: null,
    truncated: true,
  });
  // The call itself gave a few bytes, for which one more had to go.
  expect(ExecutionSchema.parse(fourth.json).structured).toBeNull();
  expect(ExecutionSchema.parse((await found(5)).json).structured).toEqual({ price: 7 });
  expect(ExecutionSchema.parse(last.json).structured).toEqual({ price: 7 });
});
