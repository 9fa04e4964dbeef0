/** A sandbox in which nothing runs costs nothing, and nobody notices that it stood still. */
import { open, readdir, readlink, stat } from 'node:fs/promises';
import { afterEach, describe, expect, it } from 'vitest';
import type { Cgroups } from '../../host-agent/cgroup/cgroups.ts';
import { openCgroups } from '../../host-agent/cgroup/open.ts';
import { listProcesses } from '../../host-agent/process/process-table.ts';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import type { RunscSandboxesOptions } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { pause, until, untilStill } from '../e2e/until.ts';
import { PATIENCE_MS, STUCK_MS } from '../patience.ts';
import { file, type GetSubject, python, shell, startSandbox } from './subject.ts';

const MIB = 1024 * 1024;
const PAGE_BYTES = 4096;

export function describeIdle(subject: GetSubject, options: () => RunscSandboxesOptions): void {
  describe('an idle sandbox', () => {
    let started: Sandbox[] = [];
    const start = async (): Promise<{ sandbox: Sandbox; cgroups: Cgroups }> => {
      const sandbox = await startSandbox(subject());
      started.push(sandbox);
      return { sandbox, cgroups: await openCgroups(options().cgroupParent) };
    };
    const untilFrozen = (cgroups: Cgroups, { id }: Sandbox): Promise<true> =>
      until('the sandbox stands still', PATIENCE_MS, async () => (cgroups.isFrozen(id) ? true : undefined));
    afterEach(async () => {
      await Promise.all(started.map((sandbox) => sandbox.destroy()));
      started = [];
    });

    it('spends no CPU, and answers the next call with its variables and the right time', async () => {
      const { sandbox, cgroups } = await start();
      await python(sandbox, 'import time; kept = 7');
      await untilFrozen(cgroups, sandbox);
      const usedMs = cgroups.usage(sandbox.id)?.cpuMs;
      await pause(1_000);
      expect(cgroups.usage(sandbox.id)?.cpuMs).toBe(usedMs);
      const askedMs = Date.now();
      const { value } = await python(sandbox, '(kept, time.time())');
      const toldMs = Date.now();
      const [kept, seconds] = (value ?? '').replace(/[()]/g, '').split(', ').map(Number);
      expect(kept).toBe(7);
      expect(seconds).toBeGreaterThan(askedMs / 1000 - 0.5);
      expect(seconds).toBeLessThan(toldMs / 1000 + 0.5);
      expect((await shell(sandbox, 'echo awake')).stdout).toBe('awake\n');
      await untilFrozen(cgroups, sandbox);
      expect((await file(sandbox, { operation: 'stat', path: '/workspace' })).status).toBe('succeeded');
    });

    it('holds hardly any memory that nobody has written to', async () => {
      const { sandbox, cgroups } = await start();
      await python(sandbox, 'kept = 7');
      await untilFrozen(cgroups, sandbox);
      const { heldBytes, emptyBytes } = await guestMemory(sandbox.id);
      expect(heldBytes).toBeGreaterThan(4 * MIB);
      expect(emptyBytes).toBeLessThan(1 * MIB);
    });

    it('is not one while a program goes on in the background', async () => {
      const { sandbox, cgroups } = await start();
      const counting = 'while true; do echo x >> /tmp/count; sleep 0.05; done > /dev/null 2>&1 &';
      await shell(sandbox, counting);
      const quiet = await start();
      await untilFrozen(quiet.cgroups, quiet.sandbox);
      // Looked at as the other one was, and several times.
      await pause(4_000);
      expect(cgroups.isFrozen(sandbox.id)).toBe(false);
      await until('it goes on', PATIENCE_MS, async () =>
        Number((await shell(sandbox, 'wc -l < /tmp/count')).stdout) > 20 ? true : undefined,
      );
      await shell(
        sandbox,
        'kill $(pgrep -f /tmp/count || ps -e -o pid,args | grep -v grep | grep "x >>" | cut -c1-7); true',
      );
    });

    it('that is held still stands still in the middle of a call, and goes on where it was', async () => {
      const { sandbox } = await start();
      let ticks = 0;
      const running = sandbox.execute(
        {
          executionId: 'exe_still00000000000000000',
          tool: 'shell',
          arguments: { command: 'for i in $(seq 150); do echo $i; sleep 0.05; done' },
          timeoutMs: 60_000,
        },
        async (_stream, bytes) => {
          ticks += Buffer.from(bytes).toString().split('\n').length - 1;
        },
      );
      const after = (count: number) =>
        until(`${count} lines`, PATIENCE_MS, async () => (ticks >= count ? true : undefined));
      await after(5);
      const goOn = sandbox.standStill?.();
      const before = await untilStill('what was on its way is here', () => ticks);
      await pause(1_000);
      expect(ticks).toBe(before);
      expect(before).toBeLessThan(150);
      goOn?.();
      expect((await running.finished).status).toBe('succeeded');
      expect(ticks).toBe(150);
    });

    it('is frozen again once what ran in the background has ended', async () => {
      const { sandbox, cgroups } = await start();
      await shell(sandbox, 'sleep 2 > /dev/null 2>&1 &');
      await untilFrozen(cgroups, sandbox);
      expect((await shell(sandbox, 'echo $(jobs | wc -l)')).stdout).toBe('0\n');
    });

    it('can be destroyed as fast as any other, and leaves nothing', async () => {
      const { sandbox, cgroups } = await start();
      await untilFrozen(cgroups, sandbox);
      const sinceMs = performance.now();
      await sandbox.destroy();
      expect(performance.now() - sinceMs).toBeLessThan(STUCK_MS);
      expect(await subject().tracesOf(sandbox.id)).toEqual([]);
    });

    it('is removed by the agent that comes after one that was killed', async () => {
      const { sandbox, cgroups } = await start();
      await untilFrozen(cgroups, sandbox);
      const { removed } = await (await subject().restarted()).reconcile();
      expect(removed).toContain(sandbox.id);
      await sandbox.lost;
      await sandbox.destroy();
      expect(await subject().tracesOf(sandbox.id)).toEqual([]);
    });
  });
}

/**
 * Of the one file that gVisor keeps the memory of the guest in: what of it takes room, and how much of that is zero. A fork that
 * writes to a page of it is given a copy of all that lies in one piece with that page.
 */
async function guestMemory(sandboxId: string): Promise<{ heldBytes: number; emptyBytes: number }> {
  const path = await memoryFileOf(sandboxId);
  const heldBytes = 512 * (await stat(path)).blocks;
  await using file = await open(path);
  const chunk = Buffer.alloc(4 * MIB);
  const empty = Buffer.alloc(chunk.length);
  let written = 0;
  for (let at = 0; ; ) {
    const { bytesRead } = await file.read(chunk, 0, chunk.length, at);
    if (bytesRead === 0) return { heldBytes, emptyBytes: heldBytes - written * PAGE_BYTES };
    at += bytesRead;
    if (chunk.compare(empty, 0, bytesRead, 0, bytesRead) === 0) continue;
    for (let page = 0; page < bytesRead; page += PAGE_BYTES) {
      if (chunk.compare(empty, 0, PAGE_BYTES, page, page + PAGE_BYTES) !== 0) written += 1;
    }
  }
}

async function memoryFileOf(sandboxId: string): Promise<string> {
  const ofSandbox = (await listProcesses()).filter(
    ({ argv }) => argv.at(-1) === sandboxId && argv.includes('boot'),
  );
  for (const { pid } of ofSandbox) {
    const folder = `/proc/${pid}/fd`;
    for (const name of await readdir(folder)) {
      const target = await readlink(`${folder}/${name}`).catch(() => '');
      if (target.includes('memfd:runsc-memory')) return `${folder}/${name}`;
    }
  }
  throw new Error('the memory of the guest is in no file');
}
