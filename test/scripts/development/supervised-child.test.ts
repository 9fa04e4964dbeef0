import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { processStartTicks } from '../../../host-agent/process/process-identity.ts';
import { SupervisedChild } from '../../../scripts/development/supervised-child.ts';
import { waitUntil } from '../../../scripts/development/wait-until.ts';
import { PATIENCE_MS } from '../../patience.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const STEADY = `process.send({ input: require('node:fs').readFileSync(0, 'utf8') }); setInterval(() => {}, 1000);`;

function supervise(program: string) {
  const dir = temporaryFolder();
  const path = join(dir, 'program.cjs');
  writeFileSync(path, program);
  const messages: unknown[] = [];
  const restarts: string[] = [];
  const child = new SupervisedChild({
    name: 'program',
    args: [path],
    environment: { PATH: process.env.PATH },
    input: 'secret',
    logPath: join(dir, 'logs/program.log'),
    parentDeathSignal: 'KILL',
    stopSignal: 'SIGTERM',
    onMessage: (message) => messages.push(message),
    onRestart: (reason) => restarts.push(reason),
  });
  onTestFinished(() => child.stop(1_000));
  child.start();
  const messageCount = (count: number) =>
    waitUntil(() => (messages.length >= count ? true : undefined), {
      timeoutMs: PATIENCE_MS,
      intervalMs: 10,
    });
  return { child, dir, messages, restarts, messageCount };
}

describe('a supervised child', () => {
  test('gets its secrets on standard input and speaks over IPC', async () => {
    const { messages, messageCount } = supervise(STEADY);
    expect(await messageCount(1)).toBe(true);
    expect(messages).toEqual([{ input: 'secret' }]);
  });

  test('that is killed is started again', async () => {
    const { child, restarts, messageCount } = supervise(STEADY);
    await messageCount(1);
    const firstPid = child.pid ?? 0;
    await child.crash();
    expect(await messageCount(2)).toBe(true);
    expect(child.pid).not.toBe(firstPid);
    expect(restarts[0]).toMatch(/^program ended \(signal SIGKILL\), starting it again in 100 ms/);
  });

  test('that keeps dying is started ever later', async () => {
    const { restarts } = supervise('process.exit(7)');
    await waitUntil(() => (restarts.length >= 3 ? true : undefined), {
      timeoutMs: PATIENCE_MS,
      intervalMs: 10,
    });
    const delays = restarts.slice(0, 3).map((reason) => /again in (\d+) ms/.exec(reason)?.[1]);
    expect(delays).toEqual(['100', '200', '400']);
  });

  test('is ended by SIGTERM when it listens, and not started again', async () => {
    const { child, restarts, messageCount } = supervise(STEADY);
    await messageCount(1);
    const pid = child.pid ?? 0;
    await child.stop(5_000);
    expect(processStartTicks(pid)).toBeUndefined();
    expect(restarts).toEqual([]);
  });

  test('is ended by SIGKILL when it does not listen', async () => {
    const { child, messageCount } = supervise(`process.on('SIGTERM', () => {}); ${STEADY}`);
    await messageCount(1);
    const pid = child.pid ?? 0;
    await child.stop(100);
    expect(processStartTicks(pid)).toBeUndefined();
  });

  test('writes its output to its log', async () => {
    const { child, dir } = supervise(`console.log('first'); console.error('last words'); process.exit(1);`);
    await child.exited;
    expect(child.lastLogLine()).toBe('last words');
    expect(readFileSync(join(dir, 'logs/program.log'), 'utf8')).toContain('first\nlast words\n');
  });
});
