/** Calls of programs: charged to their budgets, and answered once. */
import { runInDurableObject } from 'cloudflare:test';
import { describe, expect, test, vi } from 'vitest';
import { api, problemIn } from '../harness/api.ts';
import { ASK, STOCK_PRICE } from '../harness/example-tools.ts';
import {
  begin,
  get,
  host,
  path,
  pending,
  register,
  reply,
  sessionId,
  stubOf,
  token,
  until,
  useProgramSession,
} from '../harness/program-session.ts';

useProgramSession();

describe('budgets', () => {
  test.each([
    [{ calls: 1 }, 2],
    [{ calls: 0 }, 1],
    [{ bytes: 30 }, 2],
  ])('of %j stop call %i', async (limits, call) => {
    const { program, execution } = await begin({ limits });
    for (let before = 1; before < call; before += 1) {
      execution.call(before, 'people.ask', { question: 'a' });
      const { pending: asked } = await until(program.program_id, pending(1));
      await reply(program.program_id, [{ id: asked[0]?.id, content: 'b' }]);
      await execution.answer(before);
    }
    execution.call(call, 'people.ask', { question: 'a' });
    expect(await execution.answer(call)).toMatchObject({ error: { code: 'budget_exceeded' } });
  });

  test('of writes count only what may change something', async () => {
    await register({ ...ASK, name: 'change', side_effects: ['write'] });
    const { program, execution } = await begin({ limits: { writes: 1 } });
    execution.call(1, 'people.ask', { question: 'a' });
    execution.call(2, 'change', { question: 'a' });
    await until(program.program_id, pending(2));
    execution.call(3, 'change', { question: 'a' });
    expect(await execution.answer(3)).toMatchObject({ error: { code: 'budget_exceeded' } });
    expect(await get(program.program_id)).toMatchObject({ used: { calls: 3, writes: 1 } });
  });

  test('of bytes refuse a result that is too large for them', async () => {
    const { program, execution } = await begin({ limits: { bytes: 100 } });
    execution.call(1, 'people.ask', { question: 'a' });
    const { pending: asked } = await until(program.program_id, pending(1));
    await reply(program.program_id, [{ id: asked[0]?.id, content: 'x'.repeat(200) }]);
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'budget_exceeded' } });
  });

  test('keep nothing of the arguments beyond them, nor of what is settled, and end the program', async () => {
    const { program, execution } = await begin({ limits: { calls: 5_000, bytes: 30 } });
    execution.call(1, 'missing', { question: 'a' });
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'tool_not_found' } });
    // Numbers only rise, and one call at a time is there in part.
    host
      .session(sessionId)
      .send(
        { type: 'tool_call', execution_id: execution.id, call: 50, name: 'x', offset: 0, last: false },
        new Uint8Array(9),
      );
    for (let call = 2; call <= 102; call += 1)
      execution.call(call, 'people.ask', { question: 'b'.repeat(99) });
    execution.call(2, 'people.ask', { question: 'again' });
    await execution.interrupted;
    expect(await execution.answer(102)).toMatchObject({ error: { code: 'budget_exceeded' } });
    expect((await get(program.program_id)).calls).toHaveLength(102);
    await runInDurableObject(stubOf(), (_, { storage }) => {
      const kept = storage.sql.exec('SELECT COUNT(arguments) AS n FROM inner_call').one();
      const pieces = storage.sql.exec('SELECT COUNT(*) AS n FROM inner_call_piece').one();
      expect([kept.n, pieces.n]).toEqual([0, 0]);
    });
  });

  test('end a program that goes on calling', async () => {
    const { execution } = await begin({ limits: { calls: 0 } });
    for (let call = 1; call <= 101; call += 1) execution.call(call, 'people.ask', { question: 'a' });
    await execution.interrupted;
  });
});

describe('answers', () => {
  test('are taken once, all or none, and never of another program', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    execution.call(2, 'people.ask', { question: 'b' });
    const { pending: asked } = await until(program.program_id, pending(2));
    const [one, two] = asked.map(({ id }) => id);
    const unknown = await reply(program.program_id, [
      { id: one, content: 'x' },
      { id: 'tcl_AAAAAAAAAAAAAAAAAAAAAA', content: 'x' },
    ]);
    expect(unknown.status).toBe(404);
    expect((await get(program.program_id)).pending).toHaveLength(2);
    expect((await reply(program.program_id, [{ id: one, error: 'no' }])).status).toBe(202);
    expect(await execution.answer(1)).toEqual({ call: 1, error: { code: 'tool_failed', message: 'no' } });
    // The same again is an answer that was heard; another is too late.
    expect((await reply(program.program_id, [{ id: one, error: 'no' }])).status).toBe(202);
    const other = await reply(program.program_id, [{ id: one, content: 'yes' }]);
    expect([other.status, problemIn(other).code]).toEqual([409, 'call_not_pending']);
    await execution.finish({ status: 'failed', exit_code: 1 });
    const ended = await until(program.program_id, ({ status }) => status === 'failed');
    expect(ended.calls.map(({ status }) => status)).toEqual(['failed', 'void']);
    const late = await reply(program.program_id, [{ id: two, content: 'x' }]);
    expect([late.status, problemIn(late).code]).toEqual([409, 'call_not_pending']);
    expect(execution.answers).toHaveLength(1);
  });

  test.each([[{}], [{ content: 'x', structured: 1 }], [{ content: 'x', error: 'y' }], [{ content: 1 }]])(
    'like %j are refused',
    async (result) => {
      const answer = await reply('exe_AAAAAAAAAAAAAAAAAAAAAA', [
        { id: 'tcl_AAAAAAAAAAAAAAAAAAAAAA', ...result },
      ]);
      expect(answer.status).toBe(400);
    },
  );

  test('of a megabyte arrive whole, and calls of one too', async () => {
    const { program, execution } = await begin();
    const question = 'é'.repeat(400_000);
    execution.call(1, 'people.ask', { question });
    const { pending: asked } = await until(program.program_id, pending(1));
    expect(asked[0]?.arguments).toEqual({ question });
    await reply(program.program_id, [{ id: asked[0]?.id, content: question }]);
    expect(await execution.answer(1)).toEqual({ call: 1, result: question });
    execution.call(2, 'people.ask', { question: 'a' });
    const { pending: next } = await until(program.program_id, pending(1));
    const tooLarge = await reply(program.program_id, [{ id: next[0]?.id, content: 'x'.repeat(1_048_000) }]);
    expect([tooLarge.status, problemIn(tooLarge).code]).toEqual([413, 'payload_too_large']);
  });

  test('and results keep integers as they are, or are refused, and never round them', async () => {
    await register(STOCK_PRICE);
    vi.spyOn(globalThis, 'fetch').mockImplementation(
      async () =>
        new Response('{"price": 9007199254740993}', { headers: { 'content-type': 'application/json' } }),
    );
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    const { pending: asked } = await until(program.program_id, pending(1));
    const answerWith = async (number: string) =>
      api('POST', `${path()}/${program.program_id}/tool_results`, {
        token: await token(),
        headers: { 'content-type': 'application/json' },
        raw: `{"results": [{"id": "${asked[0]?.id}", "structured": {"n": ${number}}}], "detach": true}`,
      });
    const tooLarge = await answerWith('9007199254740993');
    expect([tooLarge.status, problemIn(tooLarge).code]).toEqual([400, 'invalid_request']);
    expect((await answerWith('9007199254740991')).status).toBe(202);
    expect(await execution.answer(1)).toEqual({ call: 1, result: { n: Number.MAX_SAFE_INTEGER } });
    execution.call(2, 'stock-price', { symbol: 'x' });
    // What cannot be a number without loss is given as it came, as text.
    expect(await execution.answer(2)).toEqual({ call: 2, result: '{"price": 9007199254740993}' });
  });

  test('are sent again on a new link until the host has them', async () => {
    const { program, execution } = await begin();
    execution.confirmsAnswers = false;
    execution.call(1, 'people.ask', { question: 'a' });
    const { pending: asked } = await until(program.program_id, pending(1));
    await reply(program.program_id, [{ id: asked[0]?.id, content: 'x' }]);
    await execution.answer(1);
    const double = host.session(sessionId);
    double.drop();
    execution.confirmsAnswers = true;
    await double.connect();
    await host.until(() => execution.answers.length === 2);
    double.drop();
    await double.connect();
    await host.until(() => double.isLinked);
    execution.call(2, 'missing', {});
    await execution.answer(2);
    expect(execution.answers.map(({ call }) => call)).toEqual([1, 1, 2]);
  });

  test('wait for a link that is down', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    const { pending: asked } = await until(program.program_id, pending(1));
    const double = host.session(sessionId);
    double.drop();
    expect((await reply(program.program_id, [{ id: asked[0]?.id, content: 'x' }])).status).toBe(202);
    await double.connect();
    expect(await execution.answer(1)).toEqual({ call: 1, result: 'x' });
  });
});
