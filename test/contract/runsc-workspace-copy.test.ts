/** The workspace beside a checkpoint on real gVisor: copied whole, or left out without harm to the checkpoint. */
import { access, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { WORKSPACE_FILE } from '../../shared/snapshot.ts';
import {
  emptyFolder,
  noOutput,
  restore,
  start,
  TEST_TIMEOUT_MS,
  useCheckpointHosts,
} from './checkpoint-hosts.ts';
import { file, python, shell } from './subject.ts';

useCheckpointHosts();

async function checkpointWith(sandbox: Sandbox, maxBytes: number) {
  const imageDir = await emptyFolder();
  const path = join(imageDir, WORKSPACE_FILE);
  const taken = await sandbox.checkpoint?.(imageDir, { path, maxBytes });
  if (taken?.ok !== true) throw new Error(taken?.detail ?? 'no checkpoints here');
  return { ...taken.value, imageDir, path };
}

describe('the workspace beside a checkpoint', { timeout: TEST_TIMEOUT_MS }, () => {
  it('is a tar of all that lies in it, also of a sandbox that is paused', async () => {
    const sandbox = await start();
    await shell(sandbox, 'head -c 300000 /dev/urandom >random; mkdir folder; truncate -s 1536M hole');
    await sandbox.pause();
    const taken = await checkpointWith(sandbox, 2 ** 20);
    const { size } = await stat(taken.path);
    expect(size).toBeGreaterThan(300_000);
    // What is only a hole takes no room.
    expect(size).toBeLessThan(400_000);
    expect(taken.workspace).toEqual({ bytes: size });
    await taken.goOn();
    sandbox.resume();
    expect((await shell(sandbox, 'wc -c <random')).stdout.trim()).toBe('300000');
    await sandbox.destroy();
  });

  it.each([
    ['above the bound', 'head -c 300000 /dev/zero >zeros', 'too_large'],
    ['that cannot be read', 'echo secret >closed; chmod 000 closed', 'unreadable'],
  ])(
    'is left out where there is something %s in it, and the sandbox goes on elsewhere',
    async (_, fill, why) => {
      const sandbox = await start();
      await python(sandbox, 'kept = 7');
      await shell(sandbox, fill);
      const taken = await checkpointWith(sandbox, 100_000);
      expect(taken.workspace).toEqual({ left_out: why });
      await expect(access(taken.path)).rejects.toThrow('ENOENT');
      await taken.end();
      const { sandbox: next } = await restore(1, taken, 1, noOutput);
      expect((await python(next, 'kept')).value).toBe('7');
      expect(await file(next, { operation: 'write', path: 'after', content: 'x' })).toMatchObject({
        status: 'succeeded',
      });
      await next.destroy();
    },
  );
});
