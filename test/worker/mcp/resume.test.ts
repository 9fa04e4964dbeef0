/** Streams of calls that were cut, before 2026-07-28: their clients come back for what is left. */
import { abortAllDurableObjects } from 'cloudflare:test';
import { describe, expect, test, vi } from 'vitest';
import { api } from '../harness/api.ts';
import { STOCK_PRICE } from '../harness/example-tools.ts';
import {
  alice,
  answersIn,
  as,
  begin,
  comeBack,
  goOn,
  options,
  progressIn,
  steps,
  textIn,
  useStage,
  watched,
} from './resuming.ts';
import { call, type RpcEvent, rpc } from './rpc.ts';

const LINES = ['one\n', 'two\n', 'three\n'];

const ADD = {
  name: 'add',
  description: 'Adds two numbers',
  kind: 'code',
  language: 'python',
  code: 'def main(a, b):\n    return {"sum": a + b}\n',
  input_schema: { type: 'object' },
  output_schema: { type: 'object', properties: { sum: { type: 'integer' } }, required: ['sum'] },
};

const stage = useStage();

describe('the stream of a call', () => {
  test('is gone on with behind each of its events, also after a restart: the rest once, and one answer', async () => {
    const first = await begin(steps({ session_id: stage.sessionId }));
    await first.next();
    const execution = await stage.newestExecution();
    await goOn(execution, LINES, first);
    await execution.finish();
    const events = await first.rest();
    expect(events.map(({ id }) => id?.length ?? 0).every((length) => length > 0 && length <= 2_048)).toBe(
      true,
    );
    expect(new Set(events.map(({ id }) => id)).size).toBe(events.length);
    expect(events[0]?.message).toBeUndefined();
    expect(textIn(events)).toBe(LINES.join(''));
    const [answer, ...others] = answersIn(events);
    expect([answer?.id, others]).toEqual([7, []]);

    await abortAllDurableObjects();
    for (const [index, { id }] of events.entries()) {
      const again = await (await comeBack(id)).rest();
      expect(textIn(again)).toBe(LINES.join('').slice(textIn(events.slice(0, index + 1)).length));
      expect(answersIn(again)).toEqual([answer]);
      const numbers = [...progressIn(events.slice(0, index + 1)), ...progressIn(again)].map(
        ({ progress }) => progress,
      );
      expect(numbers).toEqual([...new Set(numbers)].toSorted((a, b) => a - b));
      expect(again.at(-1)?.message).toEqual(answer);
    }
    expect(stage.running).toHaveLength(1);
  });

  test.each([0, 1, 2, 3])('that is cut behind %i lines goes on while the program runs', async (told) => {
    const first = await begin(steps({ session_id: stage.sessionId }));
    await first.next();
    const execution = await stage.newestExecution();
    await goOn(execution, LINES.slice(0, told), first);
    await first.cut();
    const second = await comeBack(first.lastId);
    expect(await second.next()).toEqual({ id: first.lastId, message: undefined });
    await goOn(execution, LINES.slice(told), second);
    await execution.finish();
    const events = [...first.events, ...(await second.rest())];
    expect(textIn(events)).toBe(LINES.join(''));
    expect(answersIn(events)).toMatchObject([
      { id: 7, result: { isError: false, content: [{ type: 'text', text: LINES.join('') }] } },
    ]);
    expect(stage.running).toHaveLength(1);
  });

  test('may be cut again and again, in the next one too', async () => {
    let reading = await begin(steps({ session_id: stage.sessionId }));
    await reading.next();
    const execution = await stage.newestExecution();
    const events: RpcEvent[] = [];
    for (const line of LINES) {
      await reading.cut();
      events.push(...reading.events);
      reading = await comeBack(reading.lastId);
      await reading.next();
      await goOn(execution, [line], reading);
    }
    await execution.finish();
    events.push(...(await reading.rest()));
    expect(textIn(events)).toBe(LINES.join(''));
    expect(answersIn(events)).toHaveLength(1);
  });

  test('without a wish for progress is one answer', async () => {
    const first = await begin(call('a', 'shell', { command: 'quiet', session_id: stage.sessionId }));
    await first.next();
    await first.cut();
    const execution = await stage.newestExecution();
    await execution.write('stdout', 'done\n');
    await execution.finish();
    const events = await (await comeBack(first.lastId)).rest();
    expect(progressIn(events)).toEqual([]);
    expect(answersIn(events)).toMatchObject([{ id: 'a', result: { content: [{ text: 'done\n' }] } }]);
  });

  test('of a call with a session of its own is gone on with, also after the session has ended', async () => {
    const first = await begin(steps({}));
    await first.next();
    const execution = await stage.newestExecution();
    await goOn(execution, LINES.slice(0, 1), first);
    await first.cut();
    const second = await comeBack(first.lastId);
    await second.next();
    await goOn(execution, LINES.slice(1), second);
    await execution.finish();
    const answers = answersIn(await second.rest());
    expect(textIn([...first.events, ...second.events])).toBe(LINES.join(''));
    expect(answers).toMatchObject([{ id: 7, result: { structuredContent: { session_ended: true } } }]);
    await stage.host.until(() => !stage.host.sessions.has(execution.claims.sid));
    expect(answersIn(await (await comeBack(first.lastId)).rest())).toEqual(answers);
    expect(answersIn(await (await comeBack(second.lastId)).rest())).toEqual(answers);
    expect(stage.running).toHaveLength(1);
  });

  test('of a program gives the program', async () => {
    const args = { session_id: stage.sessionId, language: 'python', code: 'x' };
    const first = await begin(watched(8, 'code', args));
    await first.next();
    await first.cut();
    const execution = await stage.newestExecution();
    const second = await comeBack(first.lastId);
    await second.next();
    await goOn(execution, ['said\n'], second);
    await execution.finish();
    const events = await second.rest();
    expect(textIn(events)).toBe('said\n');
    const result = { structuredContent: { program_id: expect.any(String), status: 'succeeded' } };
    expect(answersIn(events)).toMatchObject([{ id: 8, result }]);
    const token = await as('alice', 'acme', { scope: 'tools:shell' });
    const [refused] = answersIn(await (await comeBack(first.lastId, { token })).rest());
    expect(refused?.result).toMatchObject({ content: [{ text: 'error: not_found: no tool "code"' }] });
  });

  test('of a call that the gateway makes gives what it gave, as its tool is listed', async () => {
    const token = await alice();
    await api('POST', '/v1/tools', { token, body: STOCK_PRICE });
    const priced = Promise.withResolvers<void>();
    vi.spyOn(globalThis, 'fetch').mockImplementation(async () => {
      await priced.promise;
      return Response.json({ price: 7 });
    });
    const first = await begin(watched(9, 'stock-price', { session_id: stage.sessionId, symbol: 'x' }));
    await first.next();
    await first.cut();
    const second = await comeBack(first.lastId);
    await second.next();
    priced.resolve();
    const answers = answersIn(await second.rest());
    expect(answers).toMatchObject([{ id: 9, result: { isError: false } }]);
    expect(JSON.stringify(answers)).toContain('price');
  });

  test.each([
    ['what its tool promised', '{"sum":3}', { isError: false, structuredContent: { sum: 3 } }],
    ['that it was not what its tool promised', '{"sum":"3"}', { isError: true }],
  ])('of a registered tool gives %s, as the stream would have', async (_what, value, result) => {
    await api('POST', '/v1/tools', { token: await alice(), body: ADD });
    const first = await begin(call(10, ADD.name, { session_id: stage.sessionId, a: 1, b: 2 }));
    await first.next();
    const execution = await stage.newestExecution();
    execution.part('value', value);
    await execution.finish();
    const events = await first.rest();
    const answers = answersIn(events);
    expect(answers).toMatchObject([{ id: 10, result }]);
    expect(answersIn(await (await comeBack(events[0]?.id)).rest())).toEqual(answers);
    const token = await as('alice', 'acme', { scope: 'tools:shell' });
    const [missing] = answersIn(await (await comeBack(events[0]?.id, { token })).rest());
    expect(missing?.result).toMatchObject({
      isError: true,
      content: [{ text: `error: not_found: no tool "${ADD.name}"` }],
    });
  });

  test('whose session was deleted ends with an answer that says so', async () => {
    const first = await begin(steps({ session_id: stage.sessionId }));
    await first.next();
    await (await stage.newestExecution()).finish();
    await first.rest();
    await api('DELETE', `/v1/sessions/${stage.sessionId}`, { token: await alice() });
    const events = await (await comeBack(first.lastId)).rest();
    const text = 'error: not_found: the result of this call is no longer kept';
    expect(answersIn(events)).toMatchObject([{ id: 7, result: { isError: true, content: [{ text }] } }]);
  });

  test('has no events without a message for a client that would read one as a message', async () => {
    const first = await begin(steps({ session_id: stage.sessionId }), {
      headers: { 'Mcp-Protocol-Version': '2025-06-18' },
    });
    const execution = await stage.newestExecution();
    await goOn(execution, LINES.slice(0, 1), first);
    await first.cut();
    await execution.finish();
    const older = { headers: { 'Mcp-Protocol-Version': '2025-06-18' } };
    const events = [...first.events, ...(await (await comeBack(first.lastId, older)).rest())];
    expect(events.map(({ message }) => message)).not.toContain(undefined);
    expect(answersIn(events)).toHaveLength(1);
  });

  test('has no ids where there is nothing to come back to', async () => {
    const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    const unknown = call(3, 'shell', { command: 'x', session_id: 'ses_no' });
    for (const body of [list, call(2, 'create_session', {}), unknown, [list]]) {
      expect(
        (await rpc(body, await options({ headers: { 'Mcp-Protocol-Version': '2025-03-26' } }))).text,
      ).not.toMatch(/^id:/m);
    }
  });

  test('has none whose id would be too long for a header', async () => {
    const first = await begin(
      watched('x'.repeat(2_000), 'shell', { command: 's', session_id: stage.sessionId }),
    );
    await (await stage.newestExecution()).finish();
    const events = await first.rest();
    expect(events.map(({ id }) => id)).toEqual(events.map(() => undefined));
    expect(answersIn(events)).toHaveLength(1);
  });
});
