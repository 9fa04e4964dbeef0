/** Calls that no host runs: each is an execution of its session, with a receipt that anybody can verify. */
import { abortAllDurableObjects, runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { type Program, ProgramSchema } from '../../../shared/code-mode.ts';
import { sha256Hex } from '../../../shared/digest.ts';
import { EnvelopeSchema } from '../../../shared/dsse.ts';
import { readEdgeReceipt, verifyEdgeReceipt } from '../../../shared/edge-receipt-verify.ts';
import { type Execution, ExecutionSchema } from '../../../shared/execution.ts';
import { TERMINAL_GRACE_MS } from '../../../shared/limits.ts';
import { ReceiptExportSchema, verifySessionReceipts } from '../../../shared/receipt-verify.ts';
import { SessionSchema } from '../../../shared/session.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import { echo, type HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn, request } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { ASK, STOCK_PRICE } from '../harness/example-tools.ts';
import { connectFakeHost, retireFakeHost } from '../harness/fake-host.ts';
import { SessionEventReader } from '../harness/session-events.ts';

let host: HostDouble;
let sessionId: string;
let tenants = 0;
let tenant: string;

const path = (rest = '') => `/v1/sessions/${sessionId}${rest}`;
const ask = async (method: string, route: string, options: ApiOptions = {}) =>
  api(method, route, { token: await tokenOf({ claims: { tenant } }), ...options });

beforeEach(async () => {
  tenants += 1;
  tenant = `edge-receipts-${tenants}`;
  host = await connectFakeHost();
  sessionId = SessionSchema.parse((await ask('POST', '/v1/sessions', { body: {} })).json).session_id;
  for (const tool of [STOCK_PRICE, ASK]) {
    const registered = await ask('POST', '/v1/tools', { body: tool });
    expect(registered.status, registered.text).toBe(201);
  }
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (input) =>
    new Request(input).url.endsWith('/bad')
      ? new Response('no such symbol', { status: 404 })
      : Response.json({ price: 7 }),
  );
});
afterEach(async () => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  await retireFakeHost(host);
});

async function price(symbol: string, options: ApiOptions = {}): Promise<Execution> {
  const body = { tool_name: 'stock-price', arguments: { symbol } };
  const answer = await ask('POST', path('/execute'), { body, ...options });
  expect(answer.status, answer.text).toBe(200);
  return ExecutionSchema.parse(answer.json);
}

async function runShell(text: string): Promise<Execution> {
  host.script = echo;
  const body = { tool_name: 'shell', arguments: { command: text } };
  return ExecutionSchema.parse((await ask('POST', path('/execute'), { body })).json);
}

/** A program whose calls the test makes. */
async function begin(limits: object = {}): Promise<{ program: Program; execution: ExecutionDouble }> {
  const begun = Promise.withResolvers<ExecutionDouble>();
  host.script = (execution) => {
    execution.started();
    begun.resolve(execution);
  };
  const body = { language: 'python', code: 'x', detach: true, limits };
  const answer = await ask('POST', path('/programs'), { body });
  expect(answer.status, answer.text).toBe(202);
  return { program: ProgramSchema.parse(answer.json), execution: await begun.promise };
}

async function programNow({ program_id }: Program): Promise<Program> {
  return ProgramSchema.parse((await ask('GET', path(`/programs/${program_id}`))).json);
}

async function pendingOf(program: Program): Promise<string> {
  return eventually(async () => {
    const [one] = (await programNow(program)).pending;
    if (one === undefined) throw new Error('nothing is pending');
    return one.id;
  });
}

async function give(program: Program, results: object[]) {
  const body = { results, detach: true };
  return ask('POST', path(`/programs/${program.program_id}/tool_results`), { body });
}

async function exported() {
  return ReceiptExportSchema.parse((await ask('GET', path('/receipts'))).json);
}

/** Both chains are whole, and belong together. */
async function verified() {
  const { session_id, receipts, edge_receipts, keys } = await exported();
  const given = { sessionId: session_id, receipts, edgeReceipts: edge_receipts, more: false };
  const outcome = await verifySessionReceipts(given, keys);
  if (!outcome.ok) throw new Error(`${outcome.code}: ${outcome.detail}`);
  return outcome;
}

async function listed(query: string): Promise<Execution[]> {
  return ListSchema.parse((await ask('GET', path(`/executions${query}`))).json).executions;
}

describe('a tool that the edge calls', () => {
  test('is answered with the receipt of the edge, which says what was called and digests what came', async () => {
    const execution = await price('x');
    expect(execution).toMatchObject({ status: 'succeeded', structured: { price: 7 } });
    const { keys } = await exported();
    const receipt = await verifyEdgeReceipt(execution.receipt, keys);
    expect(receipt).toMatchObject({
      ok: true,
      value: {
        value: {
          execution_id: execution.execution_id,
          parent: null,
          session_id: sessionId,
          tenant_sha256: await sha256Hex(tenant),
          seq: 1,
          host_chain: { seq: 0 },
          tool: 'stock-price',
          tool_version: '7',
          args_sha256: await sha256Hex('{"symbol":"x"}'),
          performed_by: 'edge',
          limits: { timeout_ms: 30_000 },
          status: 'succeeded',
          result: { sha256: await sha256Hex('{"price":7}'), bytes: 11 },
          finished_at: execution.finished_at,
        },
      },
    });
    const again = await ask('GET', path(`/executions/${execution.execution_id}/receipt`));
    expect(EnvelopeSchema.parse(again.json)).toEqual(execution.receipt);
    const one = await ask('GET', path(`/executions/${execution.execution_id}`));
    expect(ExecutionSchema.parse(one.json)).toEqual(execution);
  });

  test('that fails has one too, and a repeated call with its key has the first', async () => {
    const failed = await price('bad');
    expect(failed.status).toBe('failed');
    const headers = { 'Idempotency-Key': 'once' };
    const [first, second] = [await price('x', { headers }), await price('x', { headers })];
    expect(second.receipt).toEqual(first.receipt);
    const { edgeReceipts } = await verified();
    expect(edgeReceipts.map(({ status }) => status)).toEqual(['failed', 'succeeded']);
  });

  test('is in the history beside what hosts ran, each at its place, in pages of any size', async () => {
    const ran = [
      await price('a'),
      await runShell('b'),
      await price('c'),
      await price('d'),
      await runShell('e'),
    ];
    const newestFirst = ran.map(({ execution_id }) => execution_id).toReversed();
    expect((await listed('')).map(({ execution_id }) => execution_id)).toEqual(newestFirst);
    for (const limit of [1, 2, 3]) {
      const seen: string[] = [];
      let query = `?limit=${limit}`;
      for (let page = 0; page < 9; page += 1) {
        const { executions, next_cursor } = ListSchema.parse(
          (await ask('GET', path(`/executions${query}`))).json,
        );
        seen.push(...executions.map(({ execution_id }) => execution_id));
        if (next_cursor === null) break;
        query = `?limit=${limit}&cursor=${next_cursor}`;
      }
      expect(seen).toEqual(newestFirst);
    }
    const summary = (await listed('?limit=3')).at(-1);
    expect(summary).toMatchObject({ tool_name: 'stock-price', structured: null, stdout: '' });
    expect(summary?.receipt).not.toBeNull();
  });

  test('stands in the chain of the hosts where it was called', async () => {
    await price('a');
    await runShell('b');
    await runShell('c');
    await price('d');
    const { receipts, edgeReceipts } = await verified();
    expect(receipts).toHaveLength(2);
    expect(edgeReceipts.map(({ seq, host_chain }) => [seq, host_chain.seq])).toEqual([
      [1, 0],
      [2, 2],
    ]);
  });

  test('runs once for its key, and is not forgotten while it runs, however many calls came after it', async () => {
    const requests: string[] = [];
    let isOver = false;
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (input) => {
      const { pathname } = new URL(new Request(input).url);
      requests.push(pathname);
      if (pathname === '/slow') await vi.waitUntil(() => isOver, { timeout: 120_000 });
      return Response.json({ price: 7 });
    });
    const body = { tool_name: 'stock-price', arguments: { symbol: 'slow' }, timeout_ms: 120_000 };
    const running = ask('POST', path('/execute'), { body });
    await eventually(() => expect(requests).toEqual(['/slow']));
    const headers = { 'Idempotency-Key': 'once' };
    const first = await price('keyed', { headers });
    for (let calls = 0; calls < 540; calls += 10) {
      await Promise.all(Array.from({ length: 10 }, () => price('x')));
    }
    expect(await price('keyed', { headers })).toEqual(first);
    expect(requests.filter((pathname) => pathname === '/keyed')).toHaveLength(1);
    isOver = true;
    expect((await running).json).toMatchObject({
      status: 'succeeded',
      receipt: { payload: expect.anything() },
    });
  }, 120_000);

  test('whose end was not seen in time is unknown for good, with a receipt and an event that say so', async () => {
    let isOver = false;
    const fetched = vi.spyOn(globalThis, 'fetch').mockImplementation(async () => {
      await vi.waitUntil(() => isOver, { timeout: 120_000 });
      return Response.json({ price: 7 });
    });
    const running = price('x');
    await eventually(() => expect(fetched).toHaveBeenCalled());
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 30_000 + TERMINAL_GRACE_MS + 1 });
    const [before] = await listed('');
    expect(before).toMatchObject({ status: 'unknown', reason: 'end_not_seen' });
    isOver = true;
    expect(await running).toMatchObject({ status: 'succeeded', receipt: null });
    expect(await listed('')).toEqual([before]);
    await runDurableObjectAlarm(env.SESSION.get(env.SESSION.idFromName(`${tenant}:${sessionId}`)));
    expect(await listed('')).toMatchObject([{ ...before, receipt: { payload: expect.anything() } }]);
    const about = { execution_id: before?.execution_id, status: 'unknown' };
    expect((await verified()).edgeReceipts).toMatchObject([about]);
    const reader = await SessionEventReader.open(sessionId, await tokenOf({ claims: { tenant } }));
    expect((await reader.until('execution.finished')).event).toMatchObject({ data: about });
    await reader.cancel();
  });

  test.each(['1.x', '-1', '1.2.3', 'x'])('is not listed behind the cursor %j', async (cursor) => {
    const answer = await ask('GET', path(`/executions?cursor=${cursor}`));
    expect([answer.status, problemIn(answer).violations?.[0]?.path]).toEqual([400, 'query.cursor']);
  });
});

describe('a call of a program', () => {
  test('is an execution with a receipt that names its program and its number, whoever performs it', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'stock-price', { symbol: 'x' });
    await execution.answer(1);
    execution.call(2, 'people.ask', { question: 'how many' });
    await give(program, [{ id: await pendingOf(program), structured: { a: [1, 2] } }]);
    await execution.answer(2);
    execution.call(3, 'people.ask', { question: 'which' });
    await give(program, [{ id: await pendingOf(program), error: { code: 'busy', message: 'later' } }]);
    await execution.answer(3);
    execution.call(4, 'missing', {});
    await execution.answer(4);
    await execution.finish();
    const { calls } = await eventually(async () => {
      const now = await programNow(program);
      expect(now.status).toBe('succeeded');
      return now;
    });
    const parent = (call: number) => ({ execution_id: program.program_id, call });
    const { edgeReceipts } = await verified();
    expect(edgeReceipts).toMatchObject([
      {
        execution_id: calls[0]?.execution_id,
        parent: parent(1),
        performed_by: 'edge',
        args_sha256: await sha256Hex('{"symbol":"x"}'),
        result: { sha256: await sha256Hex('{"price":7}') },
      },
      {
        execution_id: calls[1]?.execution_id,
        parent: parent(2),
        performed_by: 'caller',
        limits: { timeout_ms: null },
        args_sha256: await sha256Hex('{"question":"how many"}'),
        result: { sha256: await sha256Hex('{"a":[1,2]}'), bytes: 11 },
      },
      {
        parent: parent(3),
        status: 'failed',
        result: { sha256: await sha256Hex('{"code":"busy","message":"later"}') },
      },
    ]);
    for (const { execution_id } of edgeReceipts) {
      const receipt = await ask('GET', path(`/executions/${execution_id}/receipt`));
      expect(readEdgeReceipt(EnvelopeSchema.parse(receipt.json))).toMatchObject({
        ok: true,
        value: { value: { execution_id } },
      });
      const one = await ask('GET', path(`/executions/${execution_id}`));
      expect(ExecutionSchema.parse(one.json)).toMatchObject({
        execution_id,
        parent_execution_id: program.program_id,
        receipt: receipt.json,
      });
    }
    // Nothing was done for a call that was refused.
    const refused = await ask('GET', path(`/executions/${calls[3]?.execution_id}/receipt`));
    expect(problemIn(refused)).toMatchObject({
      code: 'not_found',
      detail: expect.stringContaining('refused'),
    });
  });

  test('is in the history for whoever asks for such, and in the export', async () => {
    await price('before');
    const { program, execution } = await begin();
    for (const call of [1, 2, 3]) {
      execution.call(call, 'stock-price', { symbol: String(call) });
      await execution.answer(call);
    }
    await price('after');
    await execution.finish();
    await eventually(async () => expect((await programNow(program)).status).toBe('succeeded'));
    expect((await listed('')).map(({ tool_name }) => tool_name)).toEqual([
      'stock-price',
      'python',
      'stock-price',
    ]);
    const all = await listed('?inner=true');
    const inner = (await programNow(program)).calls.map(({ execution_id }) => execution_id).toReversed();
    expect(all.map(({ execution_id }) => execution_id).slice(1, 4)).toEqual(inner);
    expect(all.map(({ parent_execution_id }) => parent_execution_id ?? null)).toEqual([
      null,
      program.program_id,
      program.program_id,
      program.program_id,
      null,
      null,
    ]);
    const document = await request('GET', path('/export'), { token: await tokenOf({ claims: { tenant } }) });
    const lines = new TextDecoder()
      .decode(await document.bytes())
      .trim()
      .split('\n')
      .map((line) => LineSchema.parse(JSON.parse(line)));
    expect(lines.filter(({ type }) => type === 'execution')).toHaveLength(6);
    expect(lines.filter(({ type }) => type === 'edge_receipt')).toHaveLength(5);
    expect(lines.at(-1)).toEqual({ type: 'end', executions: 6, receipts: 1, edge_receipts: 5 });
  });

  test('that waits is a waiting execution without a receipt yet, and one nobody answered stays without', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'who' });
    const id = await pendingOf(program);
    const inner = (await programNow(program)).calls.find((one) => one.id === id)?.execution_id;
    const waiting = await ask('GET', path(`/executions/${inner}`));
    expect(waiting.json).toMatchObject({ status: 'waiting', receipt: null, finished_at: null });
    const early = await ask('GET', path(`/executions/${inner}/receipt`));
    expect(problemIn(early).code).toBe('receipt_pending');
    await execution.finish();
    await eventually(async () => expect((await programNow(program)).status).toBe('succeeded'));
    expect((await ask('GET', path(`/executions/${inner}`))).json).toMatchObject({ status: 'cancelled' });
    const late = await ask('GET', path(`/executions/${inner}/receipt`));
    expect(problemIn(late)).toMatchObject({ code: 'not_found', detail: expect.stringContaining('answered') });
  });

  test('whose end was not seen is signed as unknown', async () => {
    const fetched = vi.spyOn(globalThis, 'fetch').mockImplementation(() => new Promise(() => undefined));
    const { execution } = await begin();
    execution.call(1, 'stock-price', { symbol: 'x' });
    await eventually(() => expect(fetched).toHaveBeenCalled());
    const double = host.session(sessionId);
    await host.until(() => double.ackedSeq === double.lastSeq);
    await abortAllDurableObjects();
    await double.connect();
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'unknown' } });
    expect((await verified()).edgeReceipts).toMatchObject([{ status: 'unknown', parent: { call: 1 } }]);
  });

  test('has one receipt, also where the object starts anew before it is signed', async () => {
    const { execution } = await begin();
    for (let call = 1; call <= 5; call += 1) execution.call(call, 'stock-price', { symbol: 'x' });
    for (let call = 1; call <= 5; call += 1) await execution.answer(call);
    await abortAllDurableObjects();
    const { edgeReceipts } = await verified();
    expect(new Set(edgeReceipts.map(({ parent }) => parent?.call))).toEqual(new Set([1, 2, 3, 4, 5]));
    expect(edgeReceipts.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5]);
  });
});

test('both chains are exported in parts that join', async () => {
  for (const symbol of ['a', 'b', 'c']) await price(symbol);
  await runShell('d');
  const seen: string[] = [];
  let [after, edgeAfter] = [0, 0];
  for (let page = 0; page < 9; page += 1) {
    const query = `?limit=2&after=${after}&edge_after=${edgeAfter}`;
    const part = ReceiptExportSchema.parse((await ask('GET', path(`/receipts${query}`))).json);
    seen.push(...part.receipts.map(() => 'host'), ...part.edge_receipts.map(() => 'edge'));
    after += part.receipts.length;
    edgeAfter += part.edge_receipts.length;
    if (part.next_after === null && part.next_edge_after === null) break;
  }
  expect(seen).toEqual(['host', 'edge', 'edge', 'edge']);
});

const ListSchema = z.object({ executions: z.array(ExecutionSchema), next_cursor: z.string().nullable() });
const LineSchema = z.looseObject({ type: z.string() });
