// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the cells are JavaScript.
/** The JavaScript kernel. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Kernel } from '../../../../host-agent/guest-link/kernel.ts';
import { startNodeKernel } from '../../../../host-agent/guest-link/node-kernel.ts';
import { PATIENCE_MS } from '../../../patience.ts';
import { bash, ENVIRONMENT, eventually, type GuestUnderTest, must } from '../guest-under-test.ts';
import { cellsOf } from './cells.ts';

const BEGUN = "function begun(next) { console.log('begun'); next(); }";

export function describeNode(guest: () => GuestUnderTest, interpreter: string): void {
  let kernel: Kernel;

  const start = async () =>
    must(
      await startNodeKernel(guest().link, {
        cwd: guest().work,
        environment: ENVIRONMENT,
        readyTimeoutMs: PATIENCE_MS,
        interpreter,
        script: `${guest().programs}/kernels/node.mjs`,
      }),
    );
  const { begin, run } = cellsOf(() => kernel);

  beforeAll(async () => {
    kernel = await start();
  });
  afterAll(async () => {
    await kernel.dispose();
  });

  it('gives the last expression as value and keeps names from cell to cell', async () => {
    const first =
      'const x = 6; let y = 7; var q = 1; function f(n) { return n * x } class C { v = 2 }\nx * y';
    expect(await run(first)).toMatchObject({ status: 'succeeded', value: '42', error: null, exitCode: null });
    expect((await run('f(y) + q + new C().v')).value).toBe('45');
    expect((await run('const { a, b: [c] } = { a: 1, b: [2] };')).value).toBeNull();
    expect((await run('[a, c, 2n ** 70n]')).value).toBe('[ 1, 2, 1180591620717411303424n ]');
    expect((await run('"é漢😀"')).value).toBe("'é漢😀'");
    expect((await run('({ a: { b: { c: { d: 1 } } } })')).value).toContain('d: 1');
  });

  it('draws random numbers from the kernel, and others where it becomes a copy', async () => {
    const code = 'const drawn = Array.from({ length: 2000 }, () => Math.random()); drawn.length';
    await run(code);
    // What the supervisor sends to a copy before it goes on.
    await run("process.kill(process.pid, 'SIGURG'); await new Promise((next) => setImmediate(next))");
    await run('const more = Array.from({ length: 2000 }, () => Math.random())');
    const mean = 'drawn.reduce((sum, one) => sum + one) / drawn.length';
    const looked = await run(
      `[new Set([...drawn, ...more]).size, drawn.every((one) => one >= 0 && one < 1), Math.abs(${mean} - 0.5) < 0.05]`,
    );
    expect(looked.value).toBe('[ 4000, true, true ]');
  });

  it('takes declarations again', async () => {
    await run('const v = 1; let w = 1; class K {}');
    expect((await run('const v = 2; let w = 2; class K { k = 2 }\n[v, w, new K().k]')).value).toBe(
      '[ 2, 2, 2 ]',
    );
    expect((await run('let v = 3; const w = 3; v + w')).value).toBe('6');
  });

  it('awaits at top level', async () => {
    const code =
      'const later = (n) => new Promise((done) => setTimeout(done, 20, n));\nconst got = await later(5);\ngot + (await later(1))';
    expect((await run(code)).value).toBe('6');
    expect((await run('for await (const n of [later(1), later(2)]) console.log(n); got')).stdout).toBe(
      '1\n2\n',
    );
    expect((await run('later(3)')).value).toBe('Promise { <pending> }');
  });

  it('imports and requires, its own modules and those of the working directory', async () => {
    await run(`require('fs').mkdirSync('node_modules/pack', { recursive: true });
const { writeFileSync } = require('node:fs');
writeFileSync('node_modules/pack/index.mjs', 'export default "packed"; export const two = 2;');
writeFileSync('node_modules/pack/package.json', '{"exports": {"import": "./index.mjs"}}');
writeFileSync('own.cjs', 'module.exports = { own: 1 };');
writeFileSync('own.mjs', 'export const own = 2; export { own as "a name" };');`);
    const imports = `import fs, { readFileSync as read,
  existsSync } from 'node:fs'
import * as os from "os"; import pack, * as all from 'pack'
import 'node:path'
import { own as mine, "a name" as named } from './own.mjs';
[typeof fs.statSync, typeof read, existsSync('own.mjs'), typeof os.cpus, pack, all.two, mine, named]`;
    expect(await run(imports)).toMatchObject({
      error: null,
      value: "[\n  'function', 'function',\n  true,       'function',\n  'packed',   2,\n  2,          2\n]",
    });
    expect(
      (await run("typeof read + (await import('./own.mjs')).own + require('./own.cjs').own")).value,
    ).toBe("'function21'");
    expect((await run("const again = async () => (await import('pack')).two; await again()")).value).toBe(
      '2',
    );
    expect((await run("import { nope } from 'node:fs'")).error).toMatchObject({
      name: 'SyntaxError',
      message: "The module 'node:fs' does not provide an export named 'nope'",
    });
    expect((await run("import x from './absent.mjs'")).error?.message).toContain('absent.mjs');
  });

  it.each([
    ['`import x from "y" ${`const ${1}`} const`', '\'import x from "y" const 1 const\''],
    ['"import x from \'y\'; const q" // const import("z")', `"import x from 'y'; const q"`],
    ['/const import\\/[/`"]/.source.length', '19'],
    ['let i = 12; i / 2 / 3 // import "x"', '2'],
    ['({ import: 1, const: 2 }).import /* const `*/', '1'],
    ['const one = [1].map((n) => { const n2 = n; return n2 / 1 })\none', '[ 1 ]'],
    ['for (const n of [1, 2]) n', '2'],
    ['if (true) { const inner = `${{ a: "}" }.a}`; inner }', "'}'"],
  ])('takes %j for what it is', async (code, value) => {
    expect(await run(code)).toMatchObject({ error: null, value });
  });

  it('prints on standard output and standard error, with its child processes, in order', async () => {
    const code = `console.log('a %d', 1, { b: 2 }); console.error('e');
process.stdout.write('c');
require('child_process').execFileSync('echo', ['d'], { stdio: 'inherit' });
console.log('f')`;
    expect(await run(code)).toMatchObject({ stdout: 'a 1 { b: 2 }\ncd\nf\n', stderr: 'e\n', value: null });
    const { stdout, status } = await run('for (let i = 0; i < 100000; i++) console.log(i)');
    expect(status).toBe('succeeded');
    expect(stdout).toHaveLength(588890);
    expect(stdout.endsWith('\n99999\n')).toBe(true);
  });

  it.each([
    ['null.x', 'TypeError', /null/, /^TypeError: .*\n {4}at cell-\d+:1:6$/],
    ['\nundefinedName', 'ReferenceError', /undefinedName is not defined/, /\n {4}at cell-\d+:2:1$/],
    ['let a =\n  1 +;', 'SyntaxError', /Unexpected token/, /\n {4}at cell-\d+:2:6$/],
    [
      'class E extends Error { name = "E" }\nfunction g() { throw new E("é\\n☃") }\ng()',
      'E',
      'é\n☃',
      /at g \(cell-\d+:2:22\)\n/,
    ],
    ['await Promise.reject(new RangeError("late"))', 'RangeError', 'late', /at cell-\d+:1:/],
    ['throw new Error("x", { cause: new TypeError("why") })', 'Error', 'x', /\[cause\]: TypeError: why/],
    ['throw { a: 1 }', 'NonError', '{ a: 1 }', /^Uncaught \{ a: 1 \}$/],
    ['throw undefined', 'NonError', 'undefined', /^Uncaught undefined$/],
    ['JSON.parse("{")', 'SyntaxError', /JSON/, /at JSON\.parse/],
    ['function r() { r() }\nr()', 'RangeError', /Maximum call stack/, /at r \(cell-/],
    [
      '({ [Symbol.for("nodejs.util.inspect.custom")]() { throw new Error("no text") } })',
      'Error',
      'no text',
      /cell-/,
    ],
  ])('describes the failure of %j', async (code, name, message, traceback) => {
    const { status, error } = await run(code);
    expect(status).toBe('failed');
    expect(error?.name).toBe(name);
    if (message instanceof RegExp) expect(error?.message).toMatch(message);
    else expect(error?.message).toBe(message);
    expect(error?.traceback).toMatch(traceback);
    expect(error?.traceback).not.toContain('kernels');
    expect(error?.traceback).not.toContain('node:inspector');
    expect(error?.traceback).not.toContain('\x1b');
  });

  it('cuts a value that is too long and says so', async () => {
    const { value } = await run("'é'.repeat(3_000_000)");
    expect(Buffer.byteLength(value ?? '')).toBeLessThanOrEqual(1024 * 1024);
    expect(value?.startsWith("'ééé")).toBe(true);
    expect(value).toMatch(/ [\d,]+ /);
  });

  it('lives on after process.exit, and reports its code', async () => {
    expect(await run('let kept = 1; process.exit(3); kept = 2')).toMatchObject({
      status: 'failed',
      exitCode: 3,
    });
    expect(await run('process.exit()')).toMatchObject({ status: 'succeeded', exitCode: 0, error: null });
    const later = 'setTimeout(() => process.exit(5), 10); await new Promise(() => {})';
    expect(await run(later)).toMatchObject({ status: 'failed', exitCode: 5, error: { name: 'ProcessExit' } });
    expect((await run('kept')).value).toBe('1');
  });

  it('fails with what nothing catches, also while it waits for something else', async () => {
    const rejected = await run('Promise.reject(new Error("nobody")); 1');
    expect(rejected).toMatchObject({ status: 'failed', error: { name: 'Error', message: 'nobody' } });
    const thrown = await run(
      'setTimeout(() => { throw new TypeError("in a timer") }, 5); await new Promise(() => {})',
    );
    expect(thrown).toMatchObject({ status: 'failed', error: { name: 'TypeError', message: 'in a timer' } });
    const both = await run('Promise.reject(new Error("first")); throw new Error("second")');
    expect(both).toMatchObject({ error: { message: 'second' } });
    expect(both.stderr).toContain('Uncaught Error: first');
  });

  it('tells the next cell what failed after its own', async () => {
    await run('globalThis.told = false; setTimeout(() => { told = true; null.x }, 20); 1');
    await eventually('the timer ran', async () =>
      (await run('1')).stderr.includes('Uncaught after an earlier cell: TypeError'),
    );
    expect((await run('told')).stderr).toBe('');
  });

  it('reads standard input, or finds its end when there is none', async () => {
    expect((await run("require('fs').readFileSync(0, 'utf8')")).value).toBe("''");
    expect(
      (await run('let n = 0; for await (const chunk of process.stdin) n += chunk.length; n')).value,
    ).toBe('0');
    const ask = `const readline = require('readline/promises');
const lines = readline.createInterface({ input: process.stdin, output: process.stdout });
const name = await lines.question('name? '); lines.close(); name.toUpperCase()`;
    const { output, ended } = begin(ask, true);
    await eventually('the prompt', () => output.text() === 'name? ');
    must(await kernel.writeStdin(Buffer.from('ada\nunused\n')));
    expect(must(await ended).value).toBe("'ADA'");
    const next = begin(ask, true);
    must(await kernel.writeStdin(Buffer.from('fresh\n')));
    expect(must(await next.ended).value).toBe("'FRESH'");
    expect((await run("require('fs').readFileSync('/dev/stdin', 'utf8')")).value).toBe("''");
    for (const read of [
      "require('fs').readFileSync(0)",
      'await (await import("stream/consumers")).buffer(process.stdin)',
    ]) {
      const whole = begin(`String(${read})`, true);
      must(await kernel.writeStdin(Buffer.from('all\nof it')));
      must(await kernel.closeStdin());
      expect(must(await whole.ended).value).toBe("'all\\nof it'");
    }
  });

  it('has its standard streams back after a cell closed them', async () => {
    await run("process.stdout.end('bye'); require('fs').closeSync(2)");
    expect(await run("console.log('back'); console.error('too')")).toMatchObject({
      stdout: 'back\n',
      stderr: 'too\n',
    });
  });

  it('hides its control pair from the programs of a cell', async () => {
    const { stdout } = await run(
      "require('child_process').execSync('ls -l /proc/self/fd', { encoding: 'utf8', stdio: ['ignore', 'inherit', 'ignore'] })",
    );
    const descriptors = [...stdout.matchAll(/ (\d+) -> /gu)].map(([, fd]) => Number(fd));
    expect(descriptors.filter((fd) => fd > 9)).toEqual([]);
    expect(descriptors.length).toBeGreaterThanOrEqual(3);
  });

  it.each([
    ['a loop', 'for (;;);'],
    ['a loop that catches everything', 'for (;;) { try { for (;;); } catch {} finally { continue } }'],
    ['an await', 'await new Promise(() => {})'],
    ['a loop after an await', 'await null; for (;;);'],
    ['a loop in a timer', 'setTimeout(begun, 1, () => { for (;;); }); await new Promise(() => {})'],
    ['a child process', "require('child_process').execFileSync('sleep', ['1000'])"],
    ['an endless printer', "for (;;) console.log('x'.repeat(1000))"],
    ['a loop in the text of a value', '({ [Symbol.for("nodejs.util.inspect.custom")]() { for (;;); } })'],
  ])('interrupts %s and keeps the names', async (_, code) => {
    await run('let z = 9');
    const { output, ended } = begin(
      code.includes('begun') ? `${BEGUN}\n${code}` : `${BEGUN} begun(() => {});\n${code}`,
    );
    await eventually('the cell runs', () => output.text().startsWith('begun\n'));
    expect(await kernel.stop(PATIENCE_MS)).toEqual({ stateLost: false });
    expect(must(await ended)).toMatchObject({ status: expect.stringMatching(/interrupted|failed/) });
    expect((await run('z')).value).toBe('9');
  });

  it('lives on while a cell waits for what never comes, and memory is collected', async () => {
    const churn = `let rounds = 0;
const churning = setInterval(() => {
  globalThis.junk = Array.from({ length: 20000 }, (_, index) => ({ index }));
  if (++rounds === 100) { clearInterval(churning); console.log('collected'); }
}, 1);
await new Promise(() => {})`;
    for (let round = 0; round < 2; round++) {
      const { output, ended } = begin(churn);
      await eventually('memory was collected', () => output.text() === 'collected\n');
      expect(await kernel.stop(PATIENCE_MS)).toEqual({ stateLost: false });
      expect(must(await ended).status).toBe('interrupted');
    }
    expect((await run('rounds')).value).toBe('100');
  });

  it('interrupts a cell at once, however early, and the next one runs', async () => {
    for (let round = 0; round < 20; round++) {
      const { ended } = begin('for (;;);');
      kernel.interrupt();
      expect(must(await ended)).toMatchObject({ status: 'interrupted', error: { name: 'Interrupted' } });
      expect((await run('z + 1')).value).toBe('10');
    }
  });

  it('takes no notice of an interrupt between cells', async () => {
    await run('1');
    kernel.interrupt();
    expect((await run('z')).value).toBe('9');
  });

  it('keeps timers and servers of earlier cells', async () => {
    await run(`let ticks = 0; const timer = setInterval(() => ticks++, 5);
const server = require('http').createServer((_, answer) => answer.end('served')).listen(0, '127.0.0.1');
await require('events').once(server, 'listening')`);
    await eventually('the timer ticks', async () => Number((await run('ticks')).value) > 2);
    const ask = '(await fetch(`http://127.0.0.1:${server.address().port}/`)).text()';
    expect((await run(`await ${ask}`)).value).toBe("'served'");
    await run('clearInterval(timer); server.close()');
  });

  it('kills what a cell that is stopped has started', async () => {
    const spawn = "require('child_process').spawn('sleep', ['4321'], { detached: true });";
    const { output, ended } = begin(`${spawn} console.log('begun'); await new Promise(() => {})`);
    await eventually('the cell runs', () => output.text() === 'begun\n');
    await kernel.stop(PATIENCE_MS);
    must(await ended);
    const { stdout } = await bash(guest(), 'cat /proc/[0-9]*/cmdline | tr "\\0" "\\n" | grep -c ^4321$');
    expect(stdout).toBe('0\n');
  });

  it('reports a kernel that ended by itself, with the output so far', async () => {
    const result = await run("console.log('last words'); process.reallyExit(5)");
    expect(result).toMatchObject({ status: 'died', exitCode: 5, stdout: 'last words\n' });
    kernel = await start();
    expect((await run('typeof z')).value).toBe("'undefined'");
  });
}
