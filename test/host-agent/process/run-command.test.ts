import { expect, test } from 'vitest';
import { run } from '../../../host-agent/process/run-command.ts';

test('output and exit code are given back', async () => {
  const result = await run('sh', ['-c', 'echo out; echo err >&2; exit 3']);
  expect(result).toMatchObject({ exitCode: 3, stdout: 'out\n' });
  expect(result.tail.split('\n').sort()).toEqual(['err', 'out']);
});

test('a program that is not there is exit code 127, as in a shell', async () => {
  const result = await run('no-such-program-here', []);
  expect(result.exitCode).toBe(127);
  expect(result.tail).toContain('no-such-program-here');
});

test('output beyond the bound is dropped, and the tail still shows the end', async () => {
  const result = await run('sh', ['-c', 'head -c 9000000 /dev/zero | tr "\\0" "a"; echo; echo end']);
  expect(result.exitCode).toBe(0);
  expect(result.stdout.length).toBeLessThan(5 * 1024 * 1024);
  expect(result.tail.endsWith('\nend')).toBe(true);
});

test('lines arrive as they are written', async () => {
  const lines: string[] = [];
  await run('printf', ['one\\ntwo\\n'], { onLine: (line) => lines.push(line) });
  expect(lines).toEqual(['one', 'two']);
});
