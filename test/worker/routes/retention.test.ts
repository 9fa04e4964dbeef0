/** What a tenant's operator wants kept for so many days and no longer, by the front door. */
import { evictDurableObject, runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type Execution, ExecutionSchema } from '../../../shared/execution.ts';
import { ReceiptExportSchema, verifySessionReceipts } from '../../../shared/receipt-verify.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { UsageReportSchema } from '../../../shared/tenant.ts';
import { sessionObjectName } from '../../../worker/objects/session-name.ts';
import { ExecutionListSchema } from '../../../worker/routes/executions.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn, request } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { STOCK_PRICE } from '../harness/example-tools.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

const DAY_MS = 86_400_000;
const LONG_BYTES = 3 * 1024 * 1024;

let host: HostDouble;
let tenants = 0;
let tenant: string;
let sessionId: string;
let beganAtMs: number;

const ask = async (method: string, path: string, options: ApiOptions = {}) =>
  api(method, path, { token: await tokenOf({ claims: { tenant } }), ...options });
const object = () => env.SESSION.get(env.SESSION.idFromName(sessionObjectName(tenant, sessionId)));
const inSession = (rest = '') => `/v1/sessions/${sessionId}${rest}`;

beforeEach(async () => {
  tenants += 1;
  tenant = `retained-${tenants}`;
  host = await connectFakeHost({
    script: async (execution) => {
      const { command } = execution.arguments;
      execution.started();
      if (command === 'long') await execution.write('stdout', new Uint8Array(LONG_BYTES).fill(97));
      else await execution.write('stdout', String(command));
      execution.part('value', 'a value');
      const error = { name: 'ValueError', message: 'of my aunt', traceback: 'line 1: my aunt' };
      await execution.finish(command === 'fail' ? { status: 'failed', exit_code: 1, error } : {});
    },
  });
  host.protocol = 2;
  beganAtMs = Date.now();
  sessionId = SessionSchema.parse((await ask('POST', '/v1/sessions', { body: {} })).json).session_id;
  vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ price: 7 }));
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  expect(host.failures).toEqual([]);
  host.close();
});

async function keep(days: object): Promise<void> {
  const set = await api('PUT', `/v1/tenants/${tenant}/retention`, { token: OPERATOR_TOKEN, body: days });
  expect(set.status, set.text).toBe(200);
}

async function run(toolName: string, given: object, more: object = {}): Promise<Execution> {
  const answer = await ask('POST', inSession('/execute'), {
    body: { tool_name: toolName, arguments: given, ...more },
  });
  expect(answer.status, answer.text).toBe(200);
  return ExecutionSchema.parse(answer.json);
}

const shell = (command: string) => run('shell', { command });
const found = async ({ execution_id: id }: Execution) =>
  ExecutionSchema.parse((await ask('GET', inSession(`/executions/${id}`))).json);

/** Nothing else of the session changes with the days when it is in a snapshot. */
async function suspend(): Promise<void> {
  const answer = await ask('POST', inSession('/suspend'), { body: {} });
  expect(answer.status, answer.text).toBe(200);
}

async function afterDays(days: number): Promise<void> {
  vi.useFakeTimers({ toFake: ['Date'], now: beganAtMs + days * DAY_MS });
  await runDurableObjectAlarm(object());
}

async function storedBytes(): Promise<number> {
  return UsageReportSchema.parse((await ask('GET', '/v1/usage')).json).now.storage_bytes;
}

async function keysOfOutputs(): Promise<number> {
  return (await env.CONTENT.list({ prefix: `outputs/${tenant}/` })).objects.length;
}

async function exported() {
  return ReceiptExportSchema.parse((await ask('GET', inSession('/receipts'))).json);
}

async function expectWholeChains(): Promise<void> {
  const { receipts, edge_receipts, keys } = await exported();
  const given = { sessionId, receipts, edgeReceipts: edge_receipts, more: false };
  expect((await verifySessionReceipts(given, keys)).ok).toBe(true);
}

describe('days of outputs', () => {
  test('take what was written and given when they are over, and no sooner; how it ended and its receipt stay', async () => {
    await keep({ outputs_days: 2 });
    const [long, short, failed] = [await shell('long'), await shell('short'), await shell('fail')];
    await eventually(async () => expect(await keysOfOutputs()).toBeGreaterThan(0));
    await suspend();
    await afterDays(1.9);
    expect(await found(short)).toMatchObject({ stdout: 'short', value: 'a value' });
    await eventually(async () => expect(await storedBytes()).toBeGreaterThan(LONG_BYTES));

    await afterDays(3);
    expect(await found(short)).toMatchObject({
      status: 'succeeded',
      stdout: '\n[5 bytes omitted]\n',
      stdout_bytes: 5,
      value: null,
      truncated: true,
      content_expired: true,
      receipt: short.receipt,
    });
    expect((await found(failed)).error).toEqual({ name: 'ValueError', message: '', traceback: '' });
    expect((await found(long)).output?.stdout).toMatchObject({ bytes: LONG_BYTES, stored_bytes: 0 });
    const output = await ask('GET', inSession(`/executions/${long.execution_id}/output/stdout`));
    expect(problemIn(output)).toMatchObject({
      code: 'not_found',
      detail: expect.stringContaining('no longer'),
    });
    const events = await request('GET', inSession(`/executions/${short.execution_id}/events`), {
      token: await tokenOf({ claims: { tenant } }),
    });
    expect(await events.text()).toContain('"from":0,"to":5');
    await eventually(async () => {
      await afterDays(3);
      expect(await keysOfOutputs()).toBe(0);
    });
    await expectWholeChains();
  });

  test('count no more against the storage of the tenant', async () => {
    await keep({ outputs_days: 1 });
    await shell('long');
    await eventually(async () => expect(await keysOfOutputs()).toBeGreaterThan(0));
    await suspend();
    // Beyond what a snapshot takes.
    const snapshot = (await storedBytes()) - LONG_BYTES;
    let days = 1.5;
    await eventually(async () => {
      days += 0.001;
      await afterDays(days);
      expect(await storedBytes()).toBeLessThanOrEqual(Math.max(0, snapshot));
    });
  });

  test('are also those of calls that the gateway made', async () => {
    await keep({ outputs_days: 1 });
    expect((await ask('POST', '/v1/tools', { body: STOCK_PRICE })).status).toBe(201);
    const priced = await run('stock-price', { symbol: 'acme' });
    expect(priced.structured).toEqual({ price: 7 });
    await shell('short');
    await suspend();
    await afterDays(1.5);
    const { structured, content_expired, status, receipt } = await found(priced);
    expect({ structured, content_expired, status }).toEqual({
      structured: null,
      content_expired: true,
      status: 'succeeded',
    });
    expect(receipt).toEqual(priced.receipt);
    await expectWholeChains();
  });
});

describe('days of executions', () => {
  test('take them out of the history, and leave the chain of receipts whole', async () => {
    await keep({ executions_days: 3 });
    expect((await ask('POST', '/v1/tools', { body: STOCK_PRICE })).status).toBe(201);
    const priced = await run('stock-price', { symbol: 'acme' });
    const gone = [await shell('short'), await shell('fail'), priced];
    await suspend();
    await afterDays(2.5);
    for (const execution of gone) expect((await found(execution)).execution_id).toBe(execution.execution_id);
    await afterDays(3.6);
    for (const { execution_id: id } of gone) {
      for (const what of ['', '/events', '/output/stdout']) {
        const answer = await ask('GET', inSession(`/executions/${id}${what}`));
        expect(problemIn(answer).code, what).toBe('not_found');
      }
    }
    const listed = await ask('GET', inSession('/executions'));
    expect(ExecutionListSchema.parse(listed.json).executions).toEqual([]);
    // What the gateway has signed is found by its id, too.
    const receipt = await ask('GET', inSession(`/executions/${priced.execution_id}/receipt`));
    expect(receipt.json).toEqual(priced.receipt);
    const { receipts, edge_receipts } = await exported();
    expect([receipts.length, edge_receipts.length]).toEqual([2, 1]);
    await expectWholeChains();
  });

  test('that are not said leave all of it, and an answer in between is looked at within a day', async () => {
    const kept = await shell('short');
    await suspend();
    await afterDays(20);
    expect(await found(kept)).toMatchObject({ stdout: 'short', truncated: false });
    await keep({ executions_days: 3 });
    await afterDays(21);
    const answer = await ask('GET', inSession(`/executions/${kept.execution_id}`));
    expect(problemIn(answer).code).toBe('not_found');
  });

  test('leave to later ones neither their places nor the states before them', async () => {
    const listed = async () => {
      const { executions } = ExecutionListSchema.parse((await ask('GET', inSession('/executions'))).json);
      return executions.map(({ execution_id: id }) => id);
    };
    const takenBack = async () => {
      const failed = await run('shell', { command: 'fail' }, { rollback: 'on_failure' });
      expect(failed).toMatchObject({ status: 'failed', rolled_back: true });
      const next = await shell('short');
      const { snapshot } = host.session(sessionId).attach;
      return { ids: [next.execution_id, failed.execution_id], to: snapshot?.snapshot_id };
    };
    await keep({ executions_days: 3 });
    expect((await ask('POST', '/v1/tools', { body: STOCK_PRICE })).status).toBe(201);
    await shell('short');
    const first = await takenBack();
    await suspend();
    await afterDays(2.5);
    const priced = await run('stock-price', { symbol: 'acme' });
    await afterDays(5.3);
    expect(await listed()).toEqual([priced.execution_id]);

    await evictDurableObject(object());
    const short = await shell('short');
    expect(await listed()).toEqual([short.execution_id, priced.execution_id]);
    const second = await takenBack();
    expect(await listed()).toEqual([...second.ids, short.execution_id, priced.execution_id]);
    expect(second.to).not.toBe(first.to);
  });

  test('go a few at a time until none is left', async () => {
    await keep({ executions_days: 1 });
    for (let call = 0; call < 40; call += 1) await shell('short');
    await suspend();
    await afterDays(1.5);
    const left = async () =>
      ExecutionListSchema.parse((await ask('GET', inSession('/executions?limit=100'))).json).executions
        .length;
    expect(await left()).toBe(8);
    await afterDays(1.6);
    expect(await left()).toBe(0);
  });
});
