/** Programs that wait: what stands still meanwhile, and what ends them. */

import {
  abortAllDurableObjects,
  evictDurableObject,
  runDurableObjectAlarm,
  runInDurableObject,
} from 'cloudflare:test';
import { describe, expect, test, vi } from 'vitest';
import { ProgramSchema } from '../../../shared/code-mode.ts';
import { api } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { STOCK_PRICE } from '../harness/example-tools.ts';
import {
  begin,
  get,
  host,
  isWaiting,
  path,
  register,
  reply,
  running,
  sessionId,
  stubOf,
  token,
  until,
  useProgramSession,
} from '../harness/program-session.ts';

useProgramSession();

describe('waiting', () => {
  test('outlives the gateway, and its answer comes afterwards', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    execution.waits();
    const { pending: asked } = await until(program.program_id, isWaiting);
    await evictDurableObject(stubOf());
    expect(await get(program.program_id)).toMatchObject({ status: 'waiting', pending: asked });
    await abortAllDurableObjects();
    const double = host.session(sessionId);
    await double.connect();
    expect((await reply(program.program_id, [{ id: asked[0]?.id, content: 'x' }])).status).toBe(202);
    expect(await execution.answer(1)).toEqual({ call: 1, result: 'x' });
    execution.goesOn();
    await execution.finish();
    await until(program.program_id, ({ status }) => status === 'succeeded');
  });

  test('lost before its grant was signed leaves nothing behind, and runs once when it is asked for again', async () => {
    const headers = { 'Idempotency-Key': 'once' };
    const asked = { headers, token: await token(), body: { language: 'python', code: 'x', detach: true } };
    const sign = crypto.subtle.sign.bind(crypto.subtle);
    let isGranting = false;
    const signed = vi.spyOn(crypto.subtle, 'sign').mockImplementation((algorithm, ...given) => {
      if (algorithm === 'HMAC') return sign(algorithm, ...given);
      isGranting = true;
      return new Promise(() => undefined);
    });
    // Who asked is gone too.
    void api('POST', path(), asked).catch(() => undefined);
    await eventually(() => expect(isGranting).toBe(true));
    signed.mockRestore();
    await runInDurableObject(stubOf(), (_, { storage }) => storage.sync());
    await abortAllDurableObjects();
    await host.session(sessionId).connect();
    const again = await api('POST', path(), asked);
    expect(again.status, again.text).toBe(202);
    await host.until(() => running.length === 1);
    const { program_id } = ProgramSchema.parse(again.json);
    expect(running[0]?.id).toBe(program_id);
    await running[0]?.finish();
    await until(program_id, ({ status }) => status === 'succeeded');
    expect(running).toHaveLength(1);
  });

  test('a call of a gateway tool whose end an abort took is unknown, unless it may be repeated', async () => {
    await register(STOCK_PRICE);
    await register({ ...STOCK_PRICE, name: 'again', side_effects: ['read', 'idempotent'] });
    const hanging = vi.spyOn(globalThis, 'fetch').mockImplementation(() => new Promise(() => undefined));
    const { program, execution } = await begin();
    execution.call(1, 'stock-price', { symbol: 'x' });
    execution.call(2, 'again', { symbol: 'x' });
    await eventually(() => expect(hanging).toHaveBeenCalledTimes(2));
    const double = host.session(sessionId);
    await host.until(() => double.ackedSeq === double.lastSeq);
    hanging.mockImplementation(async () => Response.json({ price: 1 }));
    await abortAllDurableObjects();
    await double.connect();
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'unknown' } });
    expect(await execution.answer(2)).toEqual({ call: 2, result: { price: 1 } });
    expect((await get(program.program_id)).calls.map(({ status }) => status)).toEqual([
      'unknown',
      'succeeded',
    ]);
    expect(hanging).toHaveBeenCalledTimes(3);
  });

  test('does not count against the deadline, and ends at its own', async () => {
    const { program, execution } = await begin({ limits: { timeout_ms: 20_000, wait_timeout_s: 60 } });
    execution.call(1, 'people.ask', { question: 'a' });
    execution.waits(15_000);
    await until(program.program_id, isWaiting);
    const nowMs = Date.now();
    vi.useFakeTimers({ toFake: ['Date'], now: nowMs + 50_000 });
    await runDurableObjectAlarm(stubOf());
    expect((await get(program.program_id)).status).toBe('waiting');
    vi.setSystemTime(nowMs + 61_000);
    await runDurableObjectAlarm(stubOf());
    vi.useRealTimers();
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'wait_timeout' } });
  });

  test('gives a program no time that it did not have', async () => {
    const { program, execution } = await begin({ limits: { timeout_ms: 10_000 } });
    const nowMs = Date.now();
    execution.waits(60_000);
    await until(program.program_id, ({ status }) => status === 'waiting');
    execution.goesOn(60_000);
    await until(program.program_id, ({ status }) => status === 'running');
    await runInDurableObject(stubOf(), (_, { storage }) => {
      const [row] = storage.sql.exec('SELECT leftMs FROM program_clock').toArray();
      expect(row?.leftMs).toBe(10_000);
    });
    vi.useFakeTimers({ toFake: ['Date'], now: nowMs + 20_000 });
    await runDurableObjectAlarm(stubOf());
    vi.useRealTimers();
    await execution.interrupted;
  });

  test('ends with the program when it is cancelled', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    execution.waits();
    await until(program.program_id, isWaiting);
    const cancelled = await api('POST', `${path()}/${program.program_id}/cancel`, { token: await token() });
    expect(cancelled.status, cancelled.text).toBe(202);
    await execution.interrupted;
    execution.goesOn();
    await execution.finish({ status: 'interrupted', exit_code: null });
    expect(await until(program.program_id, ({ status }) => status === 'interrupted')).toMatchObject({
      pending: [],
      calls: [{ status: 'void' }],
    });
  });

  test('ends as unknown when the sandbox is lost', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    execution.waits();
    await until(program.program_id, isWaiting);
    host.session(sessionId).send({ type: 'sandbox_lost', reason: 'host_restarted' });
    expect(await until(program.program_id, ({ status }) => status === 'unknown')).toMatchObject({
      pending: [],
      calls: [{ status: 'void' }],
    });
  });
});
