import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { tryLock, waitForLock } from '../../../host-agent/process/lock-file.ts';
import { processStartTicks } from '../../../host-agent/process/process-identity.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

function take(path: string) {
  const result = tryLock(path);
  if (!result.held) throw new Error(`held by ${result.holderPid}`);
  return result.lock;
}

describe('a lock file', () => {
  test('is held by one at a time and says by whom', () => {
    const path = join(temporaryFolder(), 'lock');
    const lock = take(path);
    expect(tryLock(path)).toEqual({ held: false, holderPid: process.pid });
    lock.release();
    expect(existsSync(path)).toBe(false);
    take(path).release();
  });

  test('of a process that is gone is no lock', () => {
    const path = join(temporaryFolder(), 'lock');
    writeFileSync(path, JSON.stringify({ pid: 2 ** 22 + 1, start_ticks: 1 }));
    take(path).release();
  });

  test('of an earlier process with the same number is no lock', () => {
    const path = join(temporaryFolder(), 'lock');
    const startTicks = processStartTicks(process.pid) ?? 0;
    writeFileSync(path, JSON.stringify({ pid: process.pid, start_ticks: startTicks - 1 }));
    take(path).release();
  });

  test('that is damaged is no lock', () => {
    const path = join(temporaryFolder(), 'lock');
    writeFileSync(path, '{"pid":');
    take(path).release();
  });

  test('is waited for, and the waiter hears who holds it', async () => {
    const path = join(temporaryFolder(), 'lock');
    const lock = take(path);
    const heard: number[] = [];
    const waiting = waitForLock(path, (pid) => {
      heard.push(pid);
      lock.release();
    });
    (await waiting).release();
    expect(heard).toEqual([process.pid]);
  });
});
