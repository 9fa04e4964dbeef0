/** Programs in the Python kernel: what they find as `tools`, and how calls come back. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Kernel } from '../../../../host-agent/guest-link/kernel.ts';
import { eventually, type GuestUnderTest, must } from '../guest-under-test.ts';
import { cellsOf, startPython } from './cells.ts';
import { type Answerer, programsOf, tool } from './programs-cells.ts';

const echo: Answerer = ({ name, arguments: args }) => ({ result: { name, args } });

export function describePythonPrograms(guest: () => GuestUnderTest): void {
  let kernel: Kernel;
  const { begin, run } = programsOf(() => kernel);
  const cells = cellsOf(() => kernel);

  beforeAll(async () => {
    kernel = await startPython(guest());
  });
  afterAll(async () => {
    await kernel.dispose();
  });

  it('calls a tool by its path and gets data back', async () => {
    const ended = await run('tools.weather.get(city="Oslo")["args"]', { answer: echo });
    expect(ended).toMatchObject({ status: 'succeeded', value: "{'city': 'Oslo'}" });
    expect(ended.calls).toEqual([{ call: 1, name: 'weather.get', arguments: { city: 'Oslo' } }]);
  });

  it.each([
    ['tools.weather.get("Oslo", 2)', { city: 'Oslo', days: 2 }],
    ['tools.weather.get({"city": "Oslo"})', { city: 'Oslo' }],
    ['tools.weather.get(city="Ä", days=None)', { city: 'Ä' }],
    [
      'tools.call("weather.get", {"city": "Oslo", "other": [1.5, None, True]})',
      { city: 'Oslo', other: [1.5, null, true] },
    ],
    ['await tools.weather.get.aio(city="Oslo")', { city: 'Oslo' }],
    ['await tools.aio.weather.get(city="Oslo")', { city: 'Oslo' }],
    ['await tools.aio.call("weather.get", {"city": "Oslo"})', { city: 'Oslo' }],
  ])('takes %s', async (code, args) => {
    const ended = await run(code, { answer: echo });
    expect(ended.error).toBeNull();
    expect(ended.calls.map((call) => call.arguments)).toEqual([args]);
  });

  it('finds the data that it was begun with, and none where there is none', async () => {
    const given = { rows: [1, 2.5, null], nested: { é: 'ü' } };
    const ended = await run('tools.arguments', { arguments: given });
    expect(ended.value).toBe("{'rows': [1, 2.5, None], 'nested': {'é': 'ü'}}");
    expect((await run('tools.arguments')).value).toBe('{}');
  });

  it('says what its tools are', async () => {
    const tools = [tool('weather.get'), tool('weather'), tool('send_mail', { parameters: null })];
    const { stdout, value } = await run(
      'import inspect\nprint(tools, inspect.signature(tools.weather.get), inspect.signature(tools.send_mail))\n' +
        'help(tools.weather.get)\ntools.names',
      { tools },
    );
    expect(stdout).toContain(
      '(*, city: str, days: int | None = None) -> Any (arguments: dict[str, Any], /) -> Any',
    );
    expect(stdout).toContain('Does weather.get.');
    expect(value).toBe("['weather.get', 'weather', 'send_mail']");
    const missing = await run('tools.wheather', { tools });
    expect(missing.error).toMatchObject({
      name: 'AttributeError',
      message: expect.stringContaining('weather'),
    });
  });

  it('raises what a tool failed with', async () => {
    const { value, error } = await run(
      'try:\n    tools.weather.get(city="x")\nexcept ToolError as error:\n    seen = error\n(seen.code, seen.message, seen.tool)',
      { answer: () => ({ error: { code: 'not_found', message: 'no such city' } }) },
    );
    expect(error).toBeNull();
    expect(value).toBe("('not_found', 'no such city', 'weather.get')");
    const uncaught = await run('tools.weather.get(city="x")', {
      answer: () => ({ error: { code: 'not_found', message: 'no such city' } }),
    });
    expect(uncaught).toMatchObject({
      status: 'failed',
      error: { name: 'ToolError', message: 'not_found: no such city' },
    });
    expect(uncaught.error?.traceback).not.toContain('python_tools');
  });

  it('makes calls at the same time, from tasks and from threads, answered in any order', async () => {
    const code = `
import asyncio
from concurrent.futures import ThreadPoolExecutor
both = await asyncio.gather(*[tools.aio.weather.get(city=str(n)) for n in range(5)])
with ThreadPoolExecutor(5) as pool:
    both += list(pool.map(lambda n: tools.weather.get(city=str(n)), range(5, 10)))
both`;
    const begun = begin(code);
    for (const first of [1, 6]) {
      await begun.called(first + 4);
      for (const { call, arguments: args } of begun.calls.slice(first - 1).toReversed()) {
        expect(await begun.answer({ call, result: args })).toBe(true);
      }
    }
    expect(must(await begun.ended).value).toBe(
      `[${Array.from({ length: 10 }, (_, n) => `{'city': '${n}'}`).join(', ')}]`,
    );
  });

  it('takes a hundred calls, of which a part is under way at a time', async () => {
    const { value, calls } = await run(
      'import asyncio\nlen(await asyncio.gather(*[tools.aio.weather.get(city=str(n)) for n in range(100)]))',
      { answer: echo },
    );
    expect(value).toBe('100');
    expect(calls).toHaveLength(100);
  });

  it('carries large arguments and results', async () => {
    const { value } = await run('len(tools.weather.get(city="é" * 300_000)["args"]["city"])', {
      answer: echo,
    });
    expect(value).toBe('300000');
    const refused = await run('tools.weather.get(city="x" * 1_100_000)', { answer: echo });
    expect(refused.error).toMatchObject({
      name: 'ToolError',
      message: expect.stringContaining('arguments_too_large'),
    });
  });

  it.each([
    ['tools.weather.get(city=2**53)', 'ToolError', 'integer beyond'],
    ['tools.weather.get(city={1: 2})', 'ToolError', 'key of the arguments'],
    ['tools.weather.get(city=object())', 'TypeError', 'not JSON serializable'],
    ['tools.weather.get(city=float("nan"))', 'ValueError', 'Out of range'],
    ['tools.weather.get("a", city="b")', 'TypeError', 'city twice'],
  ])('refuses %s before it leaves', async (code, name, message) => {
    const { error, calls } = await run(code, { answer: echo });
    expect(error).toMatchObject({ name, message: expect.stringContaining(message) });
    expect(calls).toEqual([]);
  });

  it('says when all that it does is wait', async () => {
    const begun = begin('import time\nx = tools.weather.get(city="Oslo")');
    await begun.called(1);
    await eventually('it waits', () => begun.waits.at(-1) === true);
    await begun.answer({ call: 1, result: 7 });
    expect(must(await begun.ended).status).toBe('succeeded');
    const timed = begin(
      'import asyncio\nawait asyncio.wait({asyncio.ensure_future(tools.aio.weather.get(city="x")), asyncio.ensure_future(asyncio.sleep(3))})',
    );
    await timed.called(1);
    await eventually('it waits for a timer too', () => timed.waits.length > 0);
    expect(timed.waits[0]).toBe(false);
    await timed.answer({ call: 1, result: null });
    expect(must(await timed.ended).status).toBe('succeeded');
  });

  it('does not say that it waits while a thread of it works', async () => {
    const begun = begin(
      'import threading\nstop = threading.Event()\ndef work():\n    n = 0\n    while not stop.is_set(): n += 1\n' +
        'threading.Thread(target=work).start()\ntools.weather.get(city="a")\nstop.set()\ntools.weather.get(city="b")',
    );
    await begun.called(1);
    expect(await kernelIsQuiet(begun.waits)).toBe(false);
    await begun.answer({ call: 1, result: null });
    await begun.called(2);
    await eventually('it waits', () => begun.waits.length > 0);
    await begun.answer({ call: 2, result: null });
    await begun.ended;
  });

  it('can be interrupted while it waits, and the next program begins anew', async () => {
    const begun = begin('kept = 5\ntools.weather.get(city="x")');
    await begun.called(1);
    kernel.interrupt();
    expect(must(await begun.ended)).toMatchObject({ status: 'interrupted' });
    expect(await begun.answer({ call: 1, result: 1 })).toBe(false);
    const { value, calls } = await run('kept + tools.weather.get(city="y")', {
      answer: () => ({ result: 1 }),
    });
    expect(value).toBe('6');
    expect(calls).toMatchObject([{ call: 1 }]);
  });

  it('calls nothing after its end, nor from another process', async () => {
    await run('late = tools', { answer: echo });
    const after = await cells.run('late.weather.get(city="x")');
    expect(after.error).toMatchObject({
      name: 'ToolError',
      message: expect.stringContaining('program_ended'),
    });
    const forked = await run(
      'import os\nif os.fork() == 0:\n    try:\n        tools.weather.get(city="x")\n    except ToolError as e:\n        print(e.code, flush=True)\n    os._exit(0)\nos.wait()[1]',
      { answer: echo },
    );
    expect(forked.stdout).toBe('wrong_process\n');
    expect(forked.calls).toEqual([]);
  });

  it('leaves a thread that still waits at the end without an answer, and the kernel well', async () => {
    const { status } = await run(
      'import threading, time\ndef ask():\n    global told\n    try: tools.weather.get(city="x")\n    except ToolError as e: told = e.code\n' +
        'thread = threading.Thread(target=ask); thread.start()\ntime.sleep(0.1)',
    );
    expect(status).toBe('succeeded');
    expect((await cells.run('thread.join(); told')).value).toBe("'program_ended'");
  });
}

/** Two looks of the kernel lie in this time. */
async function kernelIsQuiet(waits: boolean[]): Promise<boolean> {
  await new Promise((resolve) => setTimeout(resolve, 400));
  return waits.length > 0;
}
