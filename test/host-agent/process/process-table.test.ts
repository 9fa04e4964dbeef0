import { expect, it } from 'vitest';
import { argvOf, killProcess, listProcesses } from '../../../host-agent/process/process-table.ts';
import { spawn } from '../../../host-agent/process/spawn.ts';

it('lists a process with its arguments until it is killed', async () => {
  const mark = `mark-${process.pid}-${Date.now()}`;
  const child = spawn({
    file: process.execPath,
    argv: ['-e', 'console.log(1); setInterval(() => {}, 1000)', mark],
    environment: {},
  });
  await new Promise((resolve) => child.stdout.once('data', resolve));
  const marked = async () => (await listProcesses()).filter(({ argv }) => argv.includes(mark));
  expect((await marked()).map(({ pid }) => pid)).toEqual([child.pid]);
  killProcess(child.pid ?? 0);
  expect(await child.exited).toMatchObject({ signal: 'SIGKILL' });
  expect(await marked()).toEqual([]);
});

it('says what the arguments of one process are, and of one that is gone that it has none', async () => {
  const child = spawn({
    file: process.execPath,
    argv: ['-e', 'console.log(1); setInterval(() => {}, 1000)', 'with a space', ''],
    environment: {},
  });
  await new Promise((resolve) => child.stdout.once('data', resolve));
  const pid = child.pid ?? 0;
  expect((await argvOf(pid)).slice(-2)).toEqual(['with a space', '']);
  child.kill('SIGKILL');
  await child.exited;
  expect(await argvOf(pid)).toEqual([]);
});

it('takes a process that is gone as killed', async () => {
  const child = spawn({ file: process.execPath, argv: ['-e', ''], environment: {} });
  await child.exited;
  expect(() => killProcess(child.pid ?? 0)).not.toThrow();
});
