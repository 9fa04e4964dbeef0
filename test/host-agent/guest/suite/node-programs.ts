/** Programs in the JavaScript kernel. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Kernel } from '../../../../host-agent/guest-link/kernel.ts';
import { startNodeKernel } from '../../../../host-agent/guest-link/node-kernel.ts';
import { PATIENCE_MS } from '../../../patience.ts';
import { ENVIRONMENT, eventually, type GuestUnderTest, must } from '../guest-under-test.ts';
import { cellsOf } from './cells.ts';
import { type Answerer, programsOf, tool } from './programs-cells.ts';

const echo: Answerer = ({ name, arguments: args }) => ({ result: { name, args } });

export function describeNodePrograms(guest: () => GuestUnderTest, interpreter: string): void {
  let kernel: Kernel;
  const { begin, run } = programsOf(() => kernel);
  const cells = cellsOf(() => kernel);

  beforeAll(async () => {
    const { link, work, programs } = guest();
    kernel = must(
      await startNodeKernel(link, {
        cwd: work,
        environment: ENVIRONMENT,
        readyTimeoutMs: PATIENCE_MS,
        interpreter,
        script: `${programs}/kernels/node.mjs`,
      }),
    );
  });
  afterAll(async () => {
    await kernel.dispose();
  });

  it.each([
    ['const { args } = await tools.weather.get({ city: "Oslo" }); args.city', "'Oslo'"],
    ['(await tools["weather.get"]({ city: "Oslo" })).name', "'weather.get'"],
    ['(await tools.call("weather.get", { city: "Ä" })).args.city', "'Ä'"],
    [
      '(await Promise.all([1, 2, 3].map((n) => tools.weather.get({ n })))).map(({ args }) => args.n)',
      '[ 1, 2, 3 ]',
    ],
    ['(await tools.weather.get({ city: "é".repeat(300_000) })).args.city.length', '300000'],
    ['String(tools.weather.get)', "'Does weather.get.'"],
  ])('runs %s', async (code, value) => {
    const ended = await run(code, { answer: echo });
    expect(ended.error).toBeNull();
    expect(ended.value).toBe(value);
  });

  it('carries results of nearly a megabyte, many at once', async () => {
    const large = 'x'.repeat(1_000_000);
    const { value, error } = await run(
      '(await Promise.all([1, 2, 3].map((n) => tools.weather.get({ n })))).map((one) => one.length)',
      { answer: () => ({ result: large }) },
    );
    expect(error).toBeNull();
    expect(value).toBe('[ 1000000, 1000000, 1000000 ]');
  });

  it('finds the data that it was begun with, and none where there is none', async () => {
    const given = { rows: [1, null], nested: { é: 'ü' } };
    expect((await run('tools.arguments', { arguments: given })).value).toBe(
      "{ rows: [ 1, null ], nested: { 'é': 'ü' } }",
    );
    expect((await run('tools.arguments')).value).toBe('{}');
  });

  it('rejects with what a tool failed with', async () => {
    const answer: Answerer = () => ({ error: { code: 'not_found', message: 'no such city' } });
    const caught = await run(
      'let seen; try { await tools.weather.get({}) } catch (error) { seen = [error instanceof ToolError, error.code, error.message, error.tool] }; seen',
      { answer },
    );
    expect(caught.value).toBe("[ true, 'not_found', 'no such city', 'weather.get' ]");
    const uncaught = await run('await tools.weather.get({})', { answer });
    expect(uncaught).toMatchObject({
      status: 'failed',
      error: { name: 'ToolError', message: 'no such city' },
    });
  });

  it.each(['2 ** 53', '1n', 'NaN'])('refuses %s as an argument before it leaves', async (value) => {
    const { error, calls } = await run(`await tools.weather.get({ n: ${value} })`, { answer: echo });
    expect(error?.name).toBe('ToolError');
    expect(calls).toEqual([]);
  });

  it('says when all that it does is wait, and whether for tools alone', async () => {
    const begun = begin('await tools.weather.get({}); 1');
    await eventually('it waits', () => begun.waits.length > 0);
    expect(begun.waits).toEqual([true]);
    await begun.answer({ call: 1, result: null });
    expect(must(await begun.ended).value).toBe('1');
    const timed = begin('let t = setTimeout(() => {}, 60_000); await tools.weather.get({}); clearTimeout(t)');
    await eventually('it waits', () => timed.waits.length > 0);
    expect(timed.waits).toEqual([false]);
    await timed.answer({ call: 1, result: null });
    expect(must(await timed.ended).status).toBe('succeeded');
  });

  it('can be interrupted while it waits, and calls nothing after its end', async () => {
    const begun = begin('await tools.weather.get({})', { tools: [tool('weather.get')] });
    await begun.called(1);
    kernel.interrupt();
    expect(must(await begun.ended)).toMatchObject({ status: 'interrupted' });
    expect(await begun.answer({ call: 1, result: 1 })).toBe(false);
    const after = await cells.run('await tools.weather.get({})');
    expect(after.error).toMatchObject({ name: 'ToolError' });
    expect((await run('(await tools.weather.get({})).name', { answer: echo })).value).toBe("'weather.get'");
  });
}
