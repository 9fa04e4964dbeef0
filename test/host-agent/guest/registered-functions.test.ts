/** Cells that call registered functions, in the real JavaScript kernel; those in Python are part of the end-to-end tests. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Kernel } from '../../../host-agent/guest-link/kernel.ts';
import { startNodeKernel } from '../../../host-agent/guest-link/node-kernel.ts';
import { RegisteredToolSchema } from '../../../shared/registered-tool.ts';
import { codeCell } from '../../../worker/tools/code-cell.ts';
import { PATIENCE_MS } from '../../patience.ts';
import { describeStarted } from './describe-guest.ts';
import { ENVIRONMENT, must, Output } from './guest-under-test.ts';
import { startPlain } from './plain-supervisor.ts';

function cell(code: string, args: Record<string, unknown>, more: object = {}): string {
  const now = new Date().toISOString();
  const state = {
    required_scopes: [],
    status: 'ready',
    reason: null,
    created_at: now,
    updated_at: now,
    versions: [],
  };
  const tool = RegisteredToolSchema.parse({
    name: 'join-words',
    description: 'x',
    kind: 'code',
    language: 'javascript',
    code,
    ...state,
    ...more,
  });
  if (tool.kind !== 'code') throw new Error('the tool is no function');
  return codeCell(tool, args).code;
}

describeStarted('with registered functions in JavaScript', startPlain, (guest) => {
  let kernel: Kernel;

  beforeAll(async () => {
    kernel = must(
      await startNodeKernel(guest().link, {
        cwd: guest().work,
        environment: ENVIRONMENT,
        readyTimeoutMs: PATIENCE_MS,
        interpreter: process.execPath,
        script: `${guest().programs}/kernels/node.mjs`,
      }),
    );
  });
  afterAll(async () => {
    await kernel.dispose();
  });

  async function run(code: string) {
    const output = new Output();
    const outcome = must(await kernel.execute({ code, onOutput: output.sink, stdin: false }));
    return { ...outcome, stdout: output.text() };
  }

  test.each([
    ['called main', 'const main = async ({ words }) => ({ text: words.join(" ") });'],
    [
      'called as the tool says',
      'function other() {} function joined({ words }) { return { text: words.join(" ") }; }',
    ],
    ['that is one expression', '({ words }) => ({ text: words.join(" ") })'],
    [
      'that requires a module',
      'function main({ words }) { return { text: require("node:path").join(...words).replace("/", " ") }; }',
    ],
  ])('a function %s takes an object and gives JSON', async (_, code) => {
    const more = code.includes('joined') ? { function: 'joined' } : {};
    expect(await run(cell(code, { words: ['a', 'é😀'] }, more))).toMatchObject({
      status: 'succeeded',
      value: '{"text":"a é😀"}',
    });
  });

  test('nothing stays nothing, and what is printed is output', async () => {
    expect(await run(cell('function main() { console.log("out"); }', {}))).toMatchObject({
      value: 'null',
      stdout: 'out\n',
    });
  });

  test('a call neither sees nor leaves names of the session', async () => {
    await run('const secret = 41; var open = 1;');
    expect((await run(cell('let own = 1; function main() { return typeof own; }', {}))).value).toBe(
      '"number"',
    );
    expect((await run('[typeof own, typeof main, secret]')).value).toBe("[ 'undefined', 'undefined', 41 ]");
  });

  test.each([
    ['throws', 'function main() { throw new TypeError("no"); }', 'TypeError', 'no'],
    ['gives a number that is none', 'function main() { return [NaN]; }', 'RangeError', 'not JSON'],
    ['gives an integer beyond 2^53', 'function main() { return 2 ** 53; }', 'RangeError', 'integer beyond'],
    ['gives a big integer', 'function main() { return 1n; }', 'TypeError', 'BigInt'],
    ['has no function', 'const x = 1;', 'ReferenceError', 'defines no function'],
    ['does not parse', 'function main( {', 'SyntaxError', ''],
  ])('a tool that %s has failed and says so', async (_, code, name, message) => {
    const outcome = await run(cell(code, {}));
    expect(outcome).toMatchObject({ status: 'failed', error: { name } });
    expect(outcome.error?.message).toContain(message);
  });
});
