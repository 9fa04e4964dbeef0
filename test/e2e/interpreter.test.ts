/** The Python kernel: top-level await, values that are not JSON, and state that lives on. */
import { describe, expect, test } from 'vitest';
import { useSession, useStack } from './stack.ts';

const stack = useStack();

describe('R20 top-level await', () => {
  const session = useSession(stack);

  test('R20 works, and so does asyncio.run after it', async () => {
    const first = await session().py(
      'import asyncio\nasync def f(n):\n  await asyncio.sleep(0.05)\n  return n\nawait f(42)',
    );
    const second = await session().py('asyncio.run(f(7))');
    const third = await session().py('sum(await asyncio.gather(f(1), f(2)))');
    expect([first.value, second.value, third.value]).toEqual(['42', '7', '3']);
    for (const result of [first, second, third]) {
      expect(result).toMatchObject({ status: 'succeeded', error: null, stderr: '' });
    }
  });

  test.each([
    ['async for', 'async def g():\n  yield 1\n  yield 2\n[x async for x in g()]', '[1, 2]'],
    [
      'async with',
      'import contextlib\n@contextlib.asynccontextmanager\nasync def c():\n  yield 5\nasync with c() as v:\n  pass\nv',
      '5',
    ],
    ['a group of tasks', 'async with asyncio.TaskGroup() as g:\n  t = g.create_task(f(9))\nt.result()', '9'],
    [
      'a loop of its own',
      'loop = asyncio.new_event_loop(); r = loop.run_until_complete(f(3)); loop.close(); r',
      '3',
    ],
    [
      'asyncio.run in a thread',
      'import concurrent.futures as cf\ncf.ThreadPoolExecutor().submit(lambda: asyncio.run(f(4))).result()',
      '4',
    ],
    ['an await in a comprehension', '[await f(n) for n in range(3)]', '[0, 1, 2]'],
    ['a lambda that is awaited', 'await (lambda: f(6))()', '6'],
    ['an await that is not the last line', 'x = await f(8)\nx + 1', '9'],
  ])('R20 works in %s', async (_name, code, value) => {
    await session().py('import asyncio\nasync def f(n):\n  await asyncio.sleep(0.01)\n  return n');
    expect(await session().py(code)).toMatchObject({ status: 'succeeded', value, stderr: '', error: null });
  });

  test('R20 reports what an awaited coroutine raises, and the next await works', async () => {
    const failed = await session().py("async def bad(): raise LookupError('awaited')\nawait bad()");
    expect(failed).toMatchObject({ status: 'failed', error: { name: 'LookupError', message: 'awaited' } });
    expect(await session().py('import asyncio\nawait asyncio.sleep(0, 1)')).toMatchObject({
      value: '1',
      stderr: '',
    });
  });

  test('R20 can be stopped by its timeout and by an interrupt', async () => {
    const code = 'import asyncio\nkept = 1\nawait asyncio.sleep(60)';
    expect(await session().py(code, { timeoutMs: 1_000 })).toMatchObject({ status: 'timeout' });
    expect((await session().py('1 + 1')).value).toBe('2');
  });
});

describe('R42 values that JSON does not have', () => {
  const session = useSession(stack);
  const code = "{'a': float('nan'), 'b': float('inf'), 'c': -0.0, 'd': 10**30}";
  const value = "{'a': nan, 'b': inf, 'c': -0.0, 'd': 1000000000000000000000000000000}";

  test('R42 are text in one answer, in a stream and in the history', async () => {
    const whole = await session().py(code);
    expect(whole).toMatchObject({ status: 'succeeded', value });
    const streamed = await (await session().stream('python', { code })).collect();
    expect(streamed.end).toMatchObject({ status: 'succeeded', value });
    expect((await session().execution(whole.execution_id)).value).toBe(value);
  });

  test.each([
    ['negative infinity', "float('-inf')", '-inf'],
    ['complex numbers', "complex(float('nan'), float('-inf'))", '(nan-infj)'],
    ['numbers beyond 2^53', '2**53 + 1', '9007199254740993'],
    ['a lone surrogate', "'\\ud800'", "'\\ud800'"],
    ['separators of lines', "'\\u2028'", "'\\u2028'"],
    ['NUL', "'a\\0b'", "'a\\x00b'"],
    ['bytes', "b'\\xff\\x00'", "b'\\xff\\x00'"],
    ['an ellipsis and nothing else', '...', 'Ellipsis'],
    ['a set of one', '{1}', '{1}'],
    ['quotes of both kinds', `"it's \\"so\\""`, `'it\\'s "so"'`],
  ])('R42 such as %s are their repr', async (_name, expression, expected) => {
    const result = await session().py(expression);
    expect(result).toMatchObject({ status: 'succeeded', value: expected });
  });

  test.each([
    ['raises', 'class R:\n  def __repr__(self): raise ValueError("no repr")\nR()'],
    ['is too long a number', '10**5000'],
    ['is not text', 'class R:\n  def __repr__(self): return 5\nR()'],
  ])('R42 whose repr %s do not take the kernel along', async (_name, cell) => {
    await session().py('kept = 3');
    const result = await session().py(cell);
    expect(['succeeded', 'failed']).toContain(result.status);
    if (result.status === 'failed') expect(result.error?.name).toMatch(/^(ValueError|TypeError)$/);
    expect((await session().py('kept')).value).toBe('3');
  });

  test('R42 with a lone surrogate in printed text leave the answer strict JSON', async () => {
    const result = await session().py("print('a\\ud800b')");
    expect(['succeeded', 'failed']).toContain(result.status);
    expect((await session().py("raise ValueError('\\ud800')")).error?.name).toBe('ValueError');
    expect((await session().py('1')).value).toBe('1');
  });

  test('R42 of nothing are null, not the text None', async () => {
    expect((await session().py('None')).value).toBeNull();
    expect((await session().py('x = 5')).value).toBeNull();
    expect((await session().py('')).value).toBeNull();
    expect((await session().py('# only a comment')).value).toBeNull();
  });
});

describe('the state of a session', () => {
  const session = useSession(stack);

  test('is shared by its tools: files, folders and variables of former calls', async () => {
    await session().py("import os\nanswer = 6 * 7\nopen('note.txt', 'w').write('from python')");
    expect((await session().sh('cat note.txt; export SEEN=1; mkdir -p sub; cd sub')).stdout).toBe(
      'from python',
    );
    expect((await session().sh('echo $SEEN; basename $PWD')).stdout).toBe('1\nsub\n');
    expect((await session().py('answer')).value).toBe('42');
  });

  test('keeps functions, classes and imports, and survives a failed cell', async () => {
    await session().py('import math\ndef twice(x): return 2 * x\nclass Point:\n  y = 3');
    await session().py('half = 1\nraise RuntimeError("after the assignment")');
    expect((await session().py('twice(math.floor(1.5)), Point.y, half')).value).toBe('(2, 3, 1)');
  });

  test('is separate from that of another session', async () => {
    const other = await stack().open();
    await session().sh('echo secret > /tmp/only-here');
    await session().py('mine = 1');
    expect((await other.sh('ls /tmp')).stdout).toBe('');
    expect((await other.py('mine')).error?.name).toBe('NameError');
    await other.delete();
  });
});
