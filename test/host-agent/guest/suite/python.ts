/** The Python kernel. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Kernel } from '../../../../host-agent/guest-link/kernel.ts';
import { PATIENCE_MS } from '../../../patience.ts';
import { bash, eventually, type GuestUnderTest, must } from '../guest-under-test.ts';
import { cellsOf, startPython } from './cells.ts';

export function describePython(guest: () => GuestUnderTest): void {
  let kernel: Kernel;

  const start = () => startPython(guest());
  const { begin, run } = cellsOf(() => kernel);

  beforeAll(async () => {
    kernel = await start();
  });
  afterAll(async () => {
    await kernel.dispose();
  });

  it('gives the last expression as value and keeps names from cell to cell', async () => {
    expect(await run('x = 123456 * 654321\nx')).toMatchObject({ status: 'succeeded', value: '80779853376' });
    expect(await run('def double(n): return 2 * n')).toMatchObject({ status: 'succeeded', value: null });
    expect((await run('import math; double(x) + math.floor(0.5)')).value).toBe('161559706752');
    expect((await run('__name__, __import__("sys").argv')).value).toBe("('__main__', [''])");
  });

  it.each([
    ['1/0', 'ZeroDivisionError', 'division by zero', 'line 1, in <module>\n    1/0'],
    ['x = (1,\n2', 'SyntaxError', "'(' was never closed", 'line 1\n    x = (1,'],
    ["raise ValueError('é\\n☃')", 'ValueError', 'é\n☃', 'line 1'],
    [
      'def f():\n  return g()\ndef g():\n  return [][1]\nf()',
      'IndexError',
      'list index out of range',
      'in g',
    ],
    [
      'class E(Exception):\n  def __str__(self): raise E()\nraise E()',
      'E',
      '<unprintable E object>',
      'line 3',
    ],
    ['class V:\n  def __repr__(self): raise KeyError("q")\nV()', 'KeyError', "'q'", 'in __repr__'],
    ['def r(): r()\nr()', 'RecursionError', 'maximum recursion depth exceeded', 'Previous line repeated'],
    ['raise ExceptionGroup("g", [ValueError(1)])', 'ExceptionGroup', 'g (1 sub-exception)', 'ValueError: 1'],
    [
      'try:\n  1/0\nexcept Exception as e:\n  raise RuntimeError("x") from e',
      'RuntimeError',
      'x',
      'direct cause',
    ],
    ['async def g():\n  raise OSError("in g")\nawait g()', 'OSError', 'in g', 'in g'],
    ['"a\\0b".encode().decode("utf-16")', 'UnicodeDecodeError', /utf-16/, 'line 1'],
    ['x = "\0"', /SyntaxError|ValueError/, /null bytes/, ''],
  ])('describes the failure of %j (R65)', async (code, name, message, inTraceback) => {
    const { status, error } = await run(code);
    expect(status).toBe('failed');
    expect(error?.name).toMatch(name instanceof RegExp ? name : new RegExp(`^${name}$`));
    if (message instanceof RegExp) expect(error?.message).toMatch(message);
    else expect(error?.message).toBe(message);
    expect(error?.traceback).toContain(inTraceback);
    expect(error?.traceback).not.toContain('python.py');
    expect(error?.traceback).not.toContain('\x1b');
  });

  it('shows the lines of the cell a function was defined in', async () => {
    await run('def fails():\n    raise LookupError("here")  # the line');
    expect((await run('fails()')).error?.traceback).toContain('raise LookupError("here")  # the line');
  });

  it('awaits at top level, and asyncio.run works in the next cell (R20)', async () => {
    const define = 'import asyncio\nasync def f(n):\n  await asyncio.sleep(0.05)\n  return n\nawait f(42)';
    expect(await run(define)).toMatchObject({ value: '42', stderr: '' });
    expect(await run('asyncio.run(f(7))')).toMatchObject({ value: '7', stderr: '' });
    expect(await run('sum(await asyncio.gather(f(1), f(2)))')).toMatchObject({ value: '3', stderr: '' });
    expect(await run('f(1).close()')).toMatchObject({ status: 'succeeded', stderr: '' });
  });

  it('runs a pool of processes, and hands on through their queues and shared memory', async () => {
    const pool = `import multiprocessing, os
from multiprocessing import shared_memory
def square(n): return n * n, os.getpid()
with multiprocessing.Pool(2) as pool: found = pool.map(square, range(100), chunksize=1)
pids = {pid for _, pid in found}
[n for n, _ in found] == [n * n for n in range(100)], 1 <= len(pids) <= 2, os.getpid() in pids`;
    expect(await run(pool)).toMatchObject({ status: 'succeeded', value: '(True, True, False)', stderr: '' });
    const queue = `def produce(queue, name):
  held = shared_memory.SharedMemory(name)
  held.buf[:5] = b'there'
  held.close()
  for n in range(1000): queue.put(n)
  queue.put(None)
queue = multiprocessing.Queue()
block = shared_memory.SharedMemory(create=True, size=65536)
is_file = os.path.exists('/dev/shm/' + block.name)
process = multiprocessing.Process(target=produce, args=(queue, block.name)); process.start()
total = sum(iter(queue.get, None)); process.join()
text = bytes(block.buf[:5]); block.close(); block.unlink()
total, process.exitcode, text, is_file, os.path.exists('/dev/shm/' + block.name)`;
    expect(await run(queue)).toMatchObject({
      status: 'succeeded',
      value: "(499500, 0, b'there', True, False)",
    });
  });

  it('gives values as text that any reader takes (R42)', async () => {
    const { value } = await run("{'a': float('nan'), 'b': float('inf'), 'c': -0.0, 'd': 10**30}");
    expect(value).toBe("{'a': nan, 'b': inf, 'c': -0.0, 'd': 1000000000000000000000000000000}");
    expect((await run('"\\ud800"')).value).toBe("'\\ud800'");
  });

  it('cuts a value that is too long and says so', async () => {
    const { value } = await run("'é' * 3_000_000");
    expect(value).toMatch(/é… \[524,256 of 3,000,002 characters\]$/);
    expect(Buffer.byteLength(value ?? '')).toBeLessThanOrEqual(1024 * 1024);
    const astral = (await run("'\u{1f600}' * 300_000")).value;
    expect(astral).toMatch(/… \[262,128 of 300,002 characters\]$/);
  });

  it('delivers every line of a long loop (R28)', async () => {
    const { stdout, status } = await run('for i in range(200000): print(i)');
    expect(status).toBe('succeeded');
    expect(stdout.length).toBe(1288890);
    expect(stdout.endsWith('\n199999\n')).toBe(true);
  });

  it('captures what child processes print, in order', async () => {
    const { stdout } = await run(
      'import subprocess\nprint("a")\nsubprocess.run(["echo", "b"])\nprint("c", end="")',
    );
    expect(stdout).toBe('a\nb\nc');
  });

  it('lives on after exit, and reports its code', async () => {
    expect(await run('kept = 1\nimport sys; sys.exit(3)')).toMatchObject({ status: 'failed', exitCode: 3 });
    expect(await run('exit()')).toMatchObject({ status: 'succeeded', exitCode: 0, error: null });
    expect(await run('raise SystemExit("why")')).toMatchObject({ exitCode: 1, stderr: 'why\n' });
    expect((await run('kept')).value).toBe('1');
  });

  it('has its standard streams back after a cell closed them', async () => {
    await run('import os, sys; os.close(0); os.close(1); os.close(2)');
    expect(await run('print("back")')).toMatchObject({ stdout: 'back\n' });
    await run('sys.stdout.close(); sys.stdin.close()');
    expect(await run('print("again")')).toMatchObject({ stdout: 'again\n' });
    await run('os.dup2(os.open("/dev/null", os.O_WRONLY), 1)');
    expect(await run('print("third")')).toMatchObject({ stdout: 'third\n' });
  });

  it('gives a cell the end of its input, to its programs too, and the next cell input again (K9)', async () => {
    const first = begin(
      'import subprocess, sys; sys.stdin.readline(), subprocess.run(["cat"]), sys.stdin.read()',
      true,
    );
    must(await kernel.writeStdin(Buffer.from('line\n')));
    await eventually('the cell reads', () => first.output.text() === '' && kernel.alive);
    must(await kernel.closeStdin());
    expect(await kernel.writeStdin(Buffer.from('late'))).toMatchObject({
      failure: { reason: 'channel_ended' },
    });
    expect(must(await first.ended).value).toContain("'line\\n'");
    expect(must(await first.ended).value).toMatch(/, ''\)$/);
    const second = begin('sys.stdin.read()', true);
    must(await kernel.writeStdin(Buffer.from('more')));
    must(await kernel.closeStdin());
    expect(must(await second.ended).value).toBe("'more'");
    const none = begin('sys.stdin.read()', true);
    must(await kernel.closeStdin());
    expect(must(await none.ended).value).toBe("''");
  });

  it('keeps no input of a cell that did not read it, nor its end', async () => {
    const unread = begin('import time; time.sleep(0.3)', true);
    const written = kernel.writeStdin(Buffer.alloc(1_000_000, 'x'));
    must(await unread.ended);
    const next = begin('sys.stdin.readline()', true);
    expect(await written).toMatchObject({ failure: { reason: 'channel_ended' } });
    must(await kernel.writeStdin(Buffer.from('mine\n')));
    expect(must(await next.ended).value).toBe("'mine\\n'");
  });

  it('answers input() from standard input, or with its end when there is none', async () => {
    expect((await run('input("? ")')).error?.name).toBe('EOFError');
    const { output, ended } = begin('name = input("name? ")\nname.upper()', true);
    await eventually('the prompt', () => output.text() === 'name? ');
    must(await kernel.writeStdin(Buffer.from('ada\nunused\n')));
    expect(must(await ended).value).toBe("'ADA'");
    expect(await kernel.writeStdin(Buffer.from('x'))).toMatchObject({ ok: false });
    const next = begin('input()', true);
    must(await kernel.writeStdin(Buffer.from('fresh\n')));
    expect(must(await next.ended).value).toBe("'fresh'");
  });

  it('hides its control pair from the programs of a cell', async () => {
    const { stdout } = await run(
      'import subprocess; _ = subprocess.run("ls /proc/self/fd; echo x >&199", shell=True, close_fds=False)',
    );
    expect(
      stdout
        .split('\n')
        .map(Number)
        .filter((n) => n > 9),
    ).toEqual([]);
  });

  it('lets only the kernel answer when a cell forks', async () => {
    const { value, stderr } = await run(
      'import os\npid = os.fork()\nif pid == 0: raise OSError("in the child")\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])',
    );
    expect(value).toBe('1');
    expect(stderr).toContain('in the child');
  });

  it('drops what a thread prints after its cell', async () => {
    const late = `import threading, time
def work():
  while not go.is_set(): time.sleep(0.01)
  print("late" * 50000); over.set()
go, over = threading.Event(), threading.Event()
threading.Thread(target=work).start()`;
    expect((await run(late)).status).toBe('succeeded');
    await run('import _thread; _ = threading.Timer(0.05, go.set).start()');
    await run('1');
    expect((await run('_ = over.wait(5)')).status).toBe('succeeded');
    expect((await run('print("mine")')).stdout).toBe('mine\n');
  });

  it.each([
    ['a sleep', 'import time; time.sleep(1000)'],
    ['a loop', 'while True: pass'],
    ['an await', 'import asyncio; await asyncio.sleep(1000)'],
    ['a child process', 'import subprocess; subprocess.run(["sleep", "1000"])'],
    ['a shell of os.system', 'import os; os.system("sleep 1000"); time.sleep(1000)'],
    ['an endless printer', 'while True: print("x" * 1000)'],
  ])('interrupts %s and keeps the names', async (_, code) => {
    await run('import time; z = 9');
    const { output, ended } = begin(`print("begun", flush=True)\n${code}`);
    await eventually('the cell runs', () => output.text().startsWith('begun\n'));
    expect(await kernel.stop(PATIENCE_MS)).toEqual({ stateLost: false });
    expect(must(await ended)).toMatchObject({ status: 'interrupted', error: { name: 'KeyboardInterrupt' } });
    expect((await run('z')).value).toBe('9');
  });

  it('interrupts a cell at once, however early', async () => {
    for (let round = 0; round < 20; round++) {
      const { ended } = begin('while True: pass');
      kernel.interrupt();
      expect(must(await ended).status).toBe('interrupted');
    }
  });

  it('takes no notice of an interrupt between cells', async () => {
    await run('1');
    kernel.interrupt();
    expect((await run('z')).value).toBe('9');
    expect(await run('raise KeyboardInterrupt')).toMatchObject({ status: 'failed' });
  });

  it('interrupts a cell whose output nobody takes', async () => {
    const blocked = Promise.withResolvers<void>();
    let bytes = 0;
    const ended = kernel.execute({
      code: 'while True: print("x" * 1000)',
      onOutput: (_, part) => {
        bytes += part.byteLength;
        return blocked.promise;
      },
    });
    await eventually('the window is full', () => bytes >= 192 * 1024);
    expect(await kernel.stop(PATIENCE_MS)).toEqual({ stateLost: false });
    expect(must(await ended).status).toBe('interrupted');
    blocked.resolve();
    expect((await run('z')).value).toBe('9');
  });

  it('kills every process of a cell that is stopped, and spares those of earlier cells', async () => {
    await run('import subprocess; old = subprocess.Popen(["sleep", "1234"])');
    const spawn = `subprocess.Popen("setsid sleep 1235 & (setsid sleep 1236 &) ; sleep 1237", shell=True, start_new_session=True)`;
    const { output, ended } = begin(
      `${spawn}; time.sleep(0.2); print("begun", flush=True); time.sleep(1000)`,
    );
    await eventually('the cell runs', () => output.text() === 'begun\n');
    await kernel.stop(PATIENCE_MS);
    must(await ended);
    const { stdout } = await bash(
      guest(),
      'cat /proc/[0-9]*/cmdline | tr "\\0" "\\n" | grep -E "^123[4-7]$" | sort -u',
    );
    expect(stdout).toBe('1234\n');
    expect((await run('old.poll()')).value).toBe(null);
    await run('old.kill(); _ = old.wait()');
  });

  it('kills a kernel whose cell does not yield, says that the state is lost, and another one starts', async () => {
    const stubborn = `while True:
  try:
    print("begun", flush=True)
    while True: time.sleep(1)
  except KeyboardInterrupt: pass`;
    const { output, ended } = begin(stubborn);
    await eventually('the cell runs', () => output.text().startsWith('begun\n'));
    expect(await kernel.stop(200)).toEqual({ stateLost: true });
    expect(must(await ended)).toMatchObject({ status: 'died', signal: 'SIGKILL' });
    expect(kernel.alive).toBe(false);
    kernel = await start();
    expect((await run('"z" in globals()')).value).toBe('False');
  });

  it('reports a kernel that ended by itself, with the output so far', async () => {
    const result = await run('import os; print("last words", flush=True); os._exit(5)');
    expect(result).toMatchObject({ status: 'died', exitCode: 5, stdout: 'last words\n' });
    expect(await kernel.execute({ code: '1', onOutput: () => undefined })).toMatchObject({ ok: false });
    kernel = await start();
  });

  it('does not believe a cell that writes to the control pair', async () => {
    const { ended } = begin(
      'import os; os.write(199, b"\\xff\\xff\\xff\\xffnonsense"); import time; time.sleep(1000)',
    );
    expect(await ended).toMatchObject({ ok: false, failure: { reason: 'protocol' } });
    kernel = await start();
    expect((await run('1 + 1')).value).toBe('2');
  });
}
