/** Checkpoints on real gVisor do not grow with what has ended. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  checkpoint,
  noOutput,
  restore,
  start,
  TEST_TIMEOUT_MS,
  useCheckpointHosts,
} from './checkpoint-hosts.ts';
import { file, shell } from './subject.ts';

/** What gVisor writes down of one process, at least. */
const ROOM_OF_A_PROCESS_BYTES = 80_000;

useCheckpointHosts();

describe('a checkpoint', () => {
  it('takes no more room for programs that have ended, however often it went on', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    let sandbox = await start();
    const sizes: number[] = [];
    const servers = async (): Promise<string> =>
      (await shell(sandbox, 'grep -lx files /proc/[0-9]*/comm')).stdout;
    await file(sandbox, { operation: 'list', path: '.' });
    const server = await servers();
    for (let round = 1; round <= 6; round += 1) {
      await shell(sandbox, 'true');
      await file(sandbox, { operation: 'list', path: '.' });
      const taken = await checkpoint(sandbox);
      await taken.end();
      sizes.push((await stat(join(taken.imageDir, 'checkpoint.img'))).size);
      sandbox = (await restore(1, taken, round, noOutput)).sandbox;
    }
    const [, first = Number.NaN] = sizes;
    expect(sizes.at(-1)).toBeLessThan(first + ROOM_OF_A_PROCESS_BYTES);
    expect(server).not.toBe('');
    expect(await servers()).toBe(server);
    await sandbox.destroy();
  });

  it('takes no more room for programs that looked into /proc, once they have ended', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    const first = await checkpoint(sandbox);
    await first.goOn();
    await shell(sandbox, 'for i in $(seq 200); do ls -l /proc/self/fd; cat /proc/self/stat; done >/dev/null');
    const second = await checkpoint(sandbox);
    await second.goOn();
    const size = async ({ imageDir }: { imageDir: string }): Promise<number> =>
      (await stat(join(imageDir, 'checkpoint.img'))).size;
    const [sizeBefore, sizeAfter] = [await size(first), await size(second)];
    expect(sizeAfter).toBeLessThan(sizeBefore + 10 * ROOM_OF_A_PROCESS_BYTES);
    await sandbox.destroy();
  });
});
