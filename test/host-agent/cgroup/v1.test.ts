/** Version 1 on the machine's own hierarchies; without them, or without root, these tests have nothing to run on. */
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { diskOf } from '../../../host-agent/cgroup/disk.ts';
import { parseCgroupMounts } from '../../../host-agent/cgroup/mounts.ts';
import { CgroupsV1 } from '../../../host-agent/cgroup/v1.ts';
import { spawn } from '../../../host-agent/process/spawn.ts';
import { until } from '../../e2e/until.ts';

const MIB = 1024 * 1024;
const LIMITS = { memoryBytes: 64 * MIB, cpuQuotaUs: 50_000, cpuPeriodUs: 100_000, cpuShares: 512, pids: 32 };
const mounts = parseCgroupMounts(readFileSync('/proc/self/mountinfo', 'utf8'));
const usable = process.getuid?.() === 0 && mounts.v1.has('memory');

/** A process that joins the group and then does what it is told. */
function member(cgroups: CgroupsV1, name: string, code: string) {
  const dirs = ['memory', 'cpuacct', 'pids', 'freezer'].map(
    (key) => `${mounts.v1.get(key)}${cgroups.pathOf(name)}`,
  );
  const join = `for (const dir of ${JSON.stringify(dirs)}) require('node:fs').writeFileSync(dir + '/cgroup.procs', '0');`;
  return spawn({ file: process.execPath, argv: ['-e', `${join}\n${code}`], environment: {} });
}

describe.runIf(usable)('CgroupsV1', () => {
  const parent = `/sandgate-test-${process.pid}`;
  const cgroups = new CgroupsV1(mounts, parent);

  afterEach(async () => {
    for (const name of await cgroups.list()) await cgroups.remove(name);
    await cgroups.removeParent();
  });

  it('makes a group with its limits, without swap, and removes all of it', async () => {
    await cgroups.create('one', LIMITS);
    const read = (key: string, file: string) =>
      readFileSync(`${mounts.v1.get(key)}${parent}/one/${file}`, 'utf8').trim();
    expect(read('memory', 'memory.limit_in_bytes')).toBe(String(64 * MIB));
    if (existsSync(`${mounts.v1.get('memory')}${parent}/one/memory.memsw.limit_in_bytes`)) {
      expect(read('memory', 'memory.memsw.limit_in_bytes')).toBe(String(64 * MIB));
    }
    expect(read('cpu', 'cpu.cfs_quota_us')).toBe('50000');
    expect(read('pids', 'pids.max')).toBe('32');
    expect(await cgroups.list()).toEqual(['one']);
    expect(await cgroups.remove('one')).toBe(true);
    expect(await cgroups.list()).toEqual([]);
  });

  const disk = diskOf(tmpdir());
  it.runIf(mounts.v1.has('blkio') && disk !== undefined)('slows what a group reads from a disk', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'sandgate-io-'));
    try {
      await writeFile(join(folder, 'read'), Buffer.alloc(3 * MIB));
      const io = { disk: disk ?? '', readBytesPerS: MIB, writeBytesPerS: 2 * MIB };
      await cgroups.create('slow', { ...LIMITS, io });
      const group = `${mounts.v1.get('blkio')}${parent}/slow`;
      expect(readFileSync(`${group}/blkio.throttle.write_bps_device`, 'utf8')).toContain(
        `${disk} ${2 * MIB}`,
      );
      const reading = `echo 0 > ${group}/cgroup.procs; dd if=${folder}/read of=/dev/null bs=1M iflag=direct`;
      const startedAt = performance.now();
      const exit = await spawn({ file: '/bin/sh', argv: ['-c', reading], environment: {} }).exited;
      expect(exit.exitCode).toBe(0);
      expect(performance.now() - startedAt).toBeGreaterThan(1_500);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('counts a member that the kernel killed for memory', async () => {
    await cgroups.create('greedy', LIMITS);
    const exit = await member(cgroups, 'greedy', 'Buffer.alloc(256 * 1024 * 1024, 1)').exited;
    expect(exit.signal).toBe('SIGKILL');
    const usage = cgroups.usage('greedy');
    expect(usage?.oomKills).toBeGreaterThan(0);
    expect(usage?.peakMemoryBytes).toBeGreaterThan(60 * MIB);
    expect(usage?.peakMemoryBytes).toBeLessThanOrEqual(64 * MIB);
    cgroups.resetPeak('greedy');
    expect(cgroups.usage('greedy')?.peakMemoryBytes).toBeLessThan(32 * MIB);
  });

  it('bounds a group anew, up and down', async () => {
    await cgroups.create('bent', LIMITS);
    for (const memoryBytes of [128 * MIB, 32 * MIB]) {
      cgroups.setLimits('bent', { ...LIMITS, memoryBytes, cpuQuotaUs: 100_000, pids: 64 });
      const read = (key: string, file: string) =>
        readFileSync(`${mounts.v1.get(key)}${parent}/bent/${file}`, 'utf8').trim();
      expect(read('memory', 'memory.limit_in_bytes')).toBe(String(memoryBytes));
      expect(read('cpu', 'cpu.cfs_quota_us')).toBe('100000');
      expect(read('pids', 'pids.max')).toBe('64');
    }
  });

  it('freezes its members, thaws them, and kills them also when they are frozen', async () => {
    await cgroups.create('cold', LIMITS);
    const counting = member(cgroups, 'cold', "setInterval(() => process.stdout.write('.'), 5)");
    let dots = 0;
    counting.stdout.on('data', (chunk: Buffer) => {
      dots += chunk.length;
    });
    await until('the member counts', 10_000, async () => (dots > 0 ? true : undefined));
    cgroups.freeze('cold');
    await until('it stands still', 10_000, async () => (cgroups.isFrozen('cold') ? true : undefined));
    const usedMs = cgroups.usage('cold')?.cpuMs;
    await until('what it had written is read', 10_000, async () => {
      const before = dots;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return dots === before ? true : undefined;
    });
    expect(cgroups.usage('cold')?.cpuMs).toBe(usedMs);
    const frozenDots = dots;
    cgroups.thaw('cold');
    await until('it counts again', 10_000, async () => (dots > frozenDots ? true : undefined));
    cgroups.freeze('cold');
    expect(await cgroups.remove('cold')).toBe(true);
    expect((await counting.exited).signal).toBe('SIGKILL');
  });

  it('freezes and thaws nothing where there is no group', () => {
    cgroups.freeze('absent');
    cgroups.thaw('absent');
    expect(cgroups.isFrozen('absent')).toBe(false);
  });

  it('counts the CPU time of its members', async () => {
    await cgroups.create('busy', { ...LIMITS, cpuQuotaUs: 100_000 });
    await member(cgroups, 'busy', 'while (process.cpuUsage().user < 300_000);').exited;
    expect(cgroups.usage('busy')?.cpuMs).toBeGreaterThan(250);
  });

  it('removes a group with a living member by killing it', async () => {
    await cgroups.create('stubborn', LIMITS);
    const stubborn = member(cgroups, 'stubborn', 'console.log(1); setInterval(() => {}, 1000)');
    await new Promise((resolve) => stubborn.stdout.once('data', resolve));
    expect(await cgroups.remove('stubborn')).toBe(true);
    expect(await stubborn.exited).toMatchObject({ signal: 'SIGKILL' });
    expect(await cgroups.list()).toEqual([]);
  });

  it('takes an absent group as removed and says nothing of its usage', async () => {
    expect(await cgroups.remove('absent')).toBe(true);
    expect(cgroups.usage('absent')).toBeUndefined();
    expect(() => cgroups.resetPeak('absent')).not.toThrow();
  });
});

it('refuses a machine that lacks a controller', () => {
  const lacking = { ...mounts, v1: new Map([...mounts.v1].filter(([key]) => key !== 'pids')) };
  expect(() => new CgroupsV1(lacking, '/sandgate-test')).toThrow('pids');
});
