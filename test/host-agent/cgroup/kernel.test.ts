/**
 * Control groups as the kernel of this machine keeps them, by whichever version it has mounted. Without root, or where none
 * are mounted, these tests have nothing to run on.
 */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { diskOf } from '../../../host-agent/cgroup/disk.ts';
import { openCgroups } from '../../../host-agent/cgroup/open.ts';
import { spawn } from '../../../host-agent/process/spawn.ts';
import { until } from '../../e2e/until.ts';
import { PATIENCE_MS } from '../../patience.ts';
import { groupFiles } from './group-files.ts';

const MIB = 1024 * 1024;
const LIMITS = { memoryBytes: 64 * MIB, cpuQuotaUs: 50_000, cpuPeriodUs: 100_000, cpuShares: 512, pids: 32 };
const parent = `/sandgate-test-${process.pid}`;
const isRoot = process.getuid?.() === 0;
const cgroups = isRoot ? await openCgroups(parent).catch(() => undefined) : undefined;

describe.runIf(cgroups !== undefined)('the control groups of this machine', () => {
  if (cgroups === undefined) return;
  const files = groupFiles(cgroups);

  /** A process that joins the group and then does what it is told. */
  function member(name: string, code: string) {
    const joining = `for (const file of ${JSON.stringify(files.members(name))}) require('node:fs').writeFileSync(file, '0');`;
    return spawn({ file: process.execPath, argv: ['-e', `${joining}\n${code}`], environment: {} });
  }

  afterEach(async () => {
    for (const name of await cgroups.list()) await cgroups.remove(name);
    await cgroups.removeParent();
  });

  it('makes a group with its limits, without swap, and removes all of it', async () => {
    await cgroups.create('one', LIMITS);
    expect(files.limits('one')).toEqual({ memoryBytes: 64 * MIB, cpuQuotaUs: 50_000, pids: 32 });
    expect(files.swapBytes('one') ?? 0).toBe(0);
    expect(await cgroups.list()).toEqual(['one']);
    expect(await cgroups.remove('one')).toBe(true);
    expect(await cgroups.list()).toEqual([]);
  });

  // What is temporary may lie in memory.
  const folderOnDisk = '/var/tmp';
  const disk = diskOf(folderOnDisk);
  it.runIf(files.boundsDisks && disk !== undefined)('slows what a group reads from a disk', async () => {
    const folder = await mkdtemp(join(folderOnDisk, 'sandgate-io-'));
    try {
      await writeFile(join(folder, 'read'), Buffer.alloc(3 * MIB));
      const io = { disk: disk ?? '', readBytesPerS: MIB, writeBytesPerS: 2 * MIB };
      await cgroups.create('slow', { ...LIMITS, io });
      expect(files.diskLimits('slow')).toMatch(new RegExp(`^${disk} .*\\b${2 * MIB}\\b`, 'm'));
      const joining = files.members('slow').map((file) => `echo 0 > ${file};`);
      const reading = `${joining.join('')} dd if=${folder}/read of=/dev/null bs=1M iflag=direct`;
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
    const exit = await member('greedy', 'Buffer.alloc(256 * 1024 * 1024, 1)').exited;
    expect(exit.signal).toBe('SIGKILL');
    const usage = cgroups.usage('greedy');
    expect(usage?.oomKills).toBeGreaterThan(0);
    expect(usage?.peakMemoryBytes).toBeGreaterThan(60 * MIB);
    expect(usage?.peakMemoryBytes).toBeLessThanOrEqual(64 * MIB);
    cgroups.resetPeak('greedy');
    // By version 2 the peak stays that of the group's life.
    if (cgroups.version === 1) expect(cgroups.usage('greedy')?.peakMemoryBytes).toBeLessThan(32 * MIB);
  });

  it('lets a member start no more processes than the group may have', async () => {
    await cgroups.create('fertile', LIMITS);
    const begetting =
      "let met; for (let count = 0; count < 64; count += 1) require('node:child_process').spawn('sleep', ['60']).on('error', (error) => { met ??= error.code; }); setTimeout(() => console.log(met), 100)";
    const fertile = member('fertile', begetting);
    const said = await new Promise((resolve) => fertile.stdout.once('data', resolve));
    expect(String(said)).toBe('EAGAIN\n');
    expect(files.processes('fertile')).toBeLessThanOrEqual(32);
    expect(await cgroups.remove('fertile')).toBe(true);
    await fertile.exited;
  });

  it('bounds a group anew, up and down', async () => {
    await cgroups.create('bent', LIMITS);
    for (const memoryBytes of [128 * MIB, 32 * MIB]) {
      cgroups.setLimits('bent', { ...LIMITS, memoryBytes, cpuQuotaUs: 100_000, pids: 64 });
      expect(files.limits('bent')).toEqual({ memoryBytes, cpuQuotaUs: 100_000, pids: 64 });
    }
  });

  it('freezes its members, thaws them, and kills them also when they are frozen', async () => {
    await cgroups.create('cold', LIMITS);
    const counting = member('cold', "setInterval(() => process.stdout.write('.'), 5)");
    let dots = 0;
    counting.stdout.on('data', (chunk: Buffer) => {
      dots += chunk.length;
    });
    await until('the member counts', PATIENCE_MS, async () => (dots > 0 ? true : undefined));
    cgroups.freeze('cold');
    await until('it stands still', PATIENCE_MS, async () => (cgroups.isFrozen('cold') ? true : undefined));
    const usedMs = cgroups.usage('cold')?.cpuMs;
    await until('what it had written is read', PATIENCE_MS, async () => {
      const before = dots;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return dots === before ? true : undefined;
    });
    expect(cgroups.usage('cold')?.cpuMs).toBe(usedMs);
    const frozenDots = dots;
    cgroups.thaw('cold');
    await until('it counts again', PATIENCE_MS, async () => (dots > frozenDots ? true : undefined));
    cgroups.freeze('cold');
    expect(await cgroups.remove('cold')).toBe(true);
    expect((await counting.exited).signal).toBe('SIGKILL');
  });

  it('kills what is frozen without letting it run once more', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'sandgate-frozen-'));
    try {
      const file = join(folder, 'count');
      await cgroups.create('still', { ...LIMITS, cpuQuotaUs: 100_000 });
      const counting = `const file = require('node:fs').openSync(${JSON.stringify(file)}, 'w');
        for (let count = 1; ; count += 1) require('node:fs').writeSync(file, String(count), 0);`;
      const counter = member('still', counting);
      const count = () => readFile(file, 'utf8').catch(() => '');
      await until('the member counts', PATIENCE_MS, async () => ((await count()) === '' ? undefined : true));
      cgroups.freeze('still');
      await until('it stands still', PATIENCE_MS, async () => (cgroups.isFrozen('still') ? true : undefined));
      const counted = await count();
      cgroups.kill('still');
      expect((await counter.exited).signal).toBe('SIGKILL');
      expect(await count()).toBe(counted);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('thaws all groups below the parent as the guard of an agent that died does', async () => {
    await cgroups.create('left', LIMITS);
    cgroups.freeze('left');
    await until('it stands still', PATIENCE_MS, async () => (cgroups.isFrozen('left') ? true : undefined));
    const { parentDir, file, value } = cgroups.thawFiles;
    await writeFile(join(parentDir, 'left', file), value, { flag: 'r+' });
    await until('it is thawed', PATIENCE_MS, async () => (cgroups.isFrozen('left') ? undefined : true));
  });

  it('freezes and thaws nothing where there is no group', () => {
    cgroups.freeze('absent');
    cgroups.thaw('absent');
    expect(cgroups.isFrozen('absent')).toBe(false);
  });

  it('counts the CPU time of its members', async () => {
    await cgroups.create('busy', { ...LIMITS, cpuQuotaUs: 100_000 });
    await member('busy', 'while (process.cpuUsage().user < 300_000);').exited;
    expect(cgroups.usage('busy')?.cpuMs).toBeGreaterThan(250);
  });

  it('gives its members no more of a CPU than the quota', async () => {
    await cgroups.create('slowed', { ...LIMITS, cpuQuotaUs: 20_000 });
    await member('slowed', 'const end = Date.now() + 1_000; while (Date.now() < end);').exited;
    expect(files.timesThrottled('slowed')).toBeGreaterThan(0);
  });

  it('gives groups that want the same CPU what their weights say', async () => {
    const enough = { ...LIMITS, cpuQuotaUs: 200_000 };
    await cgroups.create('heavy', { ...enough, cpuShares: 2_048 });
    await cgroups.create('light', { ...enough, cpuShares: 64 });
    const [cpu = '0'] =
      /^Cpus_allowed_list:\s*(\d+)/m.exec(await readFile('/proc/self/status', 'utf8'))?.slice(1) ?? [];
    const spinning = ['heavy', 'light'].map((name) => {
      const joining = files.members(name).map((file) => `echo 0 > ${file};`);
      const endless = `${joining.join('')} exec taskset -c ${cpu} sh -c 'while :; do :; done'`;
      return spawn({ file: '/bin/sh', argv: ['-c', endless], environment: { PATH: '/usr/bin:/bin' } });
    });
    const used = () => ['heavy', 'light'].map((name) => cgroups.usage(name)?.cpuMs ?? 0);
    await until('both run', PATIENCE_MS, async () =>
      used().every((cpuMs) => cpuMs > 20) ? true : undefined,
    );
    const [heavyBefore = 0, lightBefore = 0] = used();
    const [heavy = 0, light = 0] = await until('the heavy one has run for a second', PATIENCE_MS, async () =>
      (used()[0] ?? 0) - heavyBefore > 1_000 ? used() : undefined,
    );
    for (const process of spinning) process.kill('SIGKILL');
    await Promise.all(spinning.map(({ exited }) => exited));
    // The weights are as 32 to 1; without them both would have as much.
    expect(heavy - heavyBefore).toBeGreaterThan(4 * (light - lightBefore));
  });

  it('removes a group with a living member by killing it', async () => {
    await cgroups.create('stubborn', LIMITS);
    const stubborn = member('stubborn', 'console.log(1); setInterval(() => {}, 1000)');
    await new Promise((resolve) => stubborn.stdout.once('data', resolve));
    expect(await cgroups.remove('stubborn')).toBe(true);
    expect(await stubborn.exited).toMatchObject({ signal: 'SIGKILL' });
    expect(await cgroups.list()).toEqual([]);
  });

  it('removes a group that has groups below it', async () => {
    await cgroups.create('tall', LIMITS);
    const [first = ''] = files.members('tall');
    await mkdir(join(dirname(first), 'below'));
    expect(await cgroups.remove('tall')).toBe(true);
    expect(await cgroups.list()).toEqual([]);
  });

  it('takes an absent group as removed and says nothing of its usage', async () => {
    expect(await cgroups.remove('absent')).toBe(true);
    expect(cgroups.usage('absent')).toBeUndefined();
    expect(() => cgroups.resetPeak('absent')).not.toThrow();
  });
});
