/** Registered functions in an interpreter of their own, as programs call them: the command, run by a real shell. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { RegisteredToolSchema } from '../../../shared/registered-tool.ts';
import { WORKDIR } from '../../../shared/session.ts';
import { codeAnswer, codeCommand } from '../../../worker/tools/code-cell.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sandgate-code-'));
  await writeFile(join(folder, 'kept.txt'), 'kept');
  await writeFile(join(folder, 'own_module.py'), 'answer = 42\n');
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface Ran {
  stdout: string;
  stderr: string;
  exitCode: number | null;
}

function run(
  language: 'python' | 'javascript',
  code: string,
  args: Record<string, unknown> = {},
): Promise<Ran> {
  const tool = RegisteredToolSchema.parse({
    name: 'tool',
    description: 'x',
    kind: 'code',
    language,
    code,
    required_scopes: [],
    status: 'ready',
    reason: null,
    created_at: new Date().toISOString(),
    updated_at: new Date().toISOString(),
    versions: [],
  });
  if (tool.kind !== 'code') throw new Error('the tool is no function');
  const command = codeCommand(tool, args).replace(WORKDIR, folder);
  const PATH = `${dirname(process.execPath)}:${process.env.PATH ?? ''}`;
  return new Promise((resolve) => {
    const child = execFile('bash', ['--norc', '--noprofile'], { env: { PATH } }, (_error, stdout, stderr) => {
      resolve({ stdout, stderr, exitCode: child.exitCode });
    });
    // A command of the size of its arguments fits into no argument.
    child.stdin?.end(command);
  });
}

describe('a function in Python', () => {
  test('gives data, and what it prints goes elsewhere', async () => {
    const code =
      'def main(a, b):\n    print("adding")\n    return {"sum": a + b, "text": "é\\u2028 \\" \'"}\n';
    const { stdout, stderr, exitCode } = await run('python', code, { a: 1, b: 2 });
    expect(codeAnswer(stdout)).toEqual({ result: { sum: 3, text: 'é\u2028 " \'' } });
    expect([stderr, exitCode]).toEqual(['adding\n', 0]);
  });

  test('runs in the workspace, with modules of it, and may wait', async () => {
    const code =
      'import asyncio, own_module\nasync def main():\n    await asyncio.sleep(0)\n    return [open("kept.txt").read(), own_module.answer]\n';
    expect(codeAnswer((await run('python', code)).stdout)).toEqual({ result: ['kept', 42] });
  });

  test.each([
    ['raise ValueError("no such city")', 'ValueError', 'no such city'],
    ['raise SystemExit(3)', 'SystemExit', '3'],
    ['return 2**60', 'ValueError', 'the tool gave an integer beyond 2**53 - 1: give it as text'],
    ['return {1, 2}', 'TypeError', 'Object of type set is not JSON serializable'],
  ])('that does %j says what was raised, and how', async (body, name, message) => {
    const { stdout, stderr, exitCode } = await run('python', `def main():\n    ${body}\n`);
    expect(codeAnswer(stdout)).toEqual({ error: { name, message } });
    expect([stderr.includes(name), exitCode]).toEqual([true, 1]);
  });

  test('takes and gives much', async () => {
    const text = 'x'.repeat(700_000);
    const code = 'def main(text):\n    return text\n';
    expect(codeAnswer((await run('python', code, { text })).stdout)).toEqual({ result: text });
  });
});

describe('a function in JavaScript', () => {
  test('gives data, and what it prints goes elsewhere', async () => {
    const code = 'const main = async ({ a }) => { console.log("seen", a); return { a, é: [null, 1.5] }; };';
    const { stdout, stderr, exitCode } = await run('javascript', code, { a: "it's" });
    expect(codeAnswer(stdout)).toEqual({ result: { a: "it's", é: [null, 1.5] } });
    expect([stderr, exitCode]).toEqual(["seen it's\n", 0]);
  });

  test('that throws says what, and how', async () => {
    const code = 'function main() { throw new RangeError("too far"); }';
    const { stdout, exitCode } = await run('javascript', code);
    expect(codeAnswer(stdout)).toEqual({ error: { name: 'RangeError', message: 'too far' } });
    expect(exitCode).toBe(1);
  });

  test('may read files of the workspace, and give nothing', async () => {
    const code = 'const main = () => { require("node:fs").readFileSync("kept.txt"); };';
    expect(codeAnswer((await run('javascript', code)).stdout)).toEqual({ result: null });
  });
});

test('an answer is only what such a command writes', () => {
  expect(codeAnswer('')).toBeUndefined();
  expect(codeAnswer('{"other": 1}')).toBeUndefined();
  expect(codeAnswer('{"error": "x"}')).toBeUndefined();
});
