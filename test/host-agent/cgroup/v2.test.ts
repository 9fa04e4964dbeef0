/** Version 2 on a tree of plain files that stand for the kernel's. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CgroupsV2, weightOfShares } from '../../../host-agent/cgroup/v2.ts';

const LIMITS = {
  memoryBytes: 536_870_912,
  cpuQuotaUs: 150_000,
  cpuPeriodUs: 100_000,
  cpuShares: 1024,
  pids: 1024,
};
const NAME = 'sbx-0011223344556677';
let root: string;
let group: string;

async function put(dir: string, files: Record<string, string>): Promise<void> {
  await mkdir(dir, { recursive: true });
  for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
}

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'cgroup2-'));
  group = join(root, 'sandgate-test', NAME);
  await put(root, {
    'cgroup.controllers': 'cpuset cpu io memory hugetlb pids\n',
    'cgroup.subtree_control': 'cpu memory pids\n',
  });
  await put(join(root, 'sandgate-test'), { 'cgroup.subtree_control': '\n' });
  await put(group, {
    'cgroup.procs': '',
    'memory.max': 'max\n',
    'memory.swap.max': 'max\n',
    'cpu.max': 'max 100000\n',
    'cpu.weight': '100\n',
    'pids.max': 'max\n',
    'io.max': '\n',
    'cgroup.freeze': '0\n',
    'cgroup.events': 'populated 1\nfrozen 0\n',
    'memory.events': 'low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n',
    'memory.peak': '1234\n',
    'memory.current': '1000\n',
    'cpu.stat': 'usage_usec 2500\nuser_usec 2000\nsystem_usec 500\n',
  });
});

afterEach(() => rm(root, { recursive: true, force: true }));

describe('CgroupsV2', () => {
  const cgroups = () => new CgroupsV2(root, '/sandgate-test');
  const written = (name: string) => readFile(join(group, name), 'utf8');

  it('hands the controllers down and sets every limit', async () => {
    await cgroups().create(NAME, LIMITS);
    const handed = (dir: string) => readFile(join(dir, 'cgroup.subtree_control'), 'utf8');
    expect(await handed(root)).toMatch(/^\+cpuset/);
    expect(await handed(join(root, 'sandgate-test'))).toBe('+cpu +cpuset +memory +pids');
    expect(await written('memory.max')).toMatch(/^536870912/);
    expect(await written('memory.swap.max')).toMatch(/^0/);
    expect(await written('cpu.max')).toMatch(/^150000 100000/);
    expect(await written('pids.max')).toMatch(/^1024/);
  });

  it('bounds what goes to a disk and comes from it where that is asked for, and hands io down for that', async () => {
    const io = { disk: '254:0', readBytesPerS: 1_000_000, writeBytesPerS: undefined };
    await cgroups().create(NAME, { ...LIMITS, io });
    expect(await written('io.max')).toBe('254:0 rbps=1000000 wbps=max');
    expect(await readFile(join(root, 'sandgate-test', 'cgroup.subtree_control'), 'utf8')).toMatch(/\+io$/);
  });

  it.each(['cpu', 'cpuset', 'memory', 'pids'])(
    'is not opened on a machine without %s',
    async (controller) => {
      const others = ['cpu', 'cpuset', 'memory', 'pids'].filter((name) => name !== controller);
      await writeFile(join(root, 'cgroup.controllers'), `${others.join(' ')}\n`);
      expect(cgroups).toThrow(`the machine has no cgroup controller ${controller}`);
    },
  );

  it('does not set a limit that the kernel does not have', async () => {
    await rm(join(group, 'pids.max'));
    await expect(cgroups().create(NAME, LIMITS)).rejects.toThrow('pids.max');
  });

  it('does without a swap limit where there is no swap', async () => {
    await rm(join(group, 'memory.swap.max'));
    await expect(cgroups().create(NAME, LIMITS)).resolves.toBeUndefined();
  });

  it('reads out-of-memory kills, CPU time and peak', () => {
    expect(cgroups().usage(NAME)).toEqual({ oomKills: 1, cpuMs: 2.5, peakMemoryBytes: 1234 });
  });

  it('takes the current memory for the peak where the kernel keeps none', async () => {
    await rm(join(group, 'memory.peak'));
    expect(cgroups().usage(NAME)?.peakMemoryBytes).toBe(1000);
  });

  it('says nothing of a group that is not there, and takes it as removed', async () => {
    expect(cgroups().usage('absent')).toBeUndefined();
    expect(() => cgroups().kill('absent')).not.toThrow();
    expect(await cgroups().remove('absent')).toBe(true);
  });

  it('kills by cgroup.kill', async () => {
    await writeFile(join(group, 'cgroup.kill'), '0');
    cgroups().kill(NAME);
    expect(await written('cgroup.kill')).toBe('1');
  });

  it('freezes, thaws, and thaws what it kills', async () => {
    cgroups().freeze(NAME);
    expect(await written('cgroup.freeze')).toMatch(/^1/);
    expect(cgroups().isFrozen(NAME)).toBe(false);
    await writeFile(join(group, 'cgroup.events'), 'populated 1\nfrozen 1\n');
    expect(cgroups().isFrozen(NAME)).toBe(true);
    cgroups().kill(NAME);
    expect(await written('cgroup.freeze')).toMatch(/^0/);
    expect(() => cgroups().freeze('absent')).not.toThrow();
  });

  it('lists what is under the parent', async () => {
    expect(await cgroups().list()).toEqual([NAME]);
  });

  it.each(['..', 'a/b', '', '.hidden'])('refuses the name %o', (name) => {
    expect(() => cgroups().pathOf(name)).toThrow(TypeError);
  });

  it.each(['relative', '/', '/a/../b', '/a//b', ''])('refuses the parent %o', (parent) => {
    expect(() => new CgroupsV2(root, parent)).toThrow(TypeError);
  });
});

it('turns shares into weights within the kernel’s range', () => {
  expect([2, 1024, 262_144, 1_000_000].map(weightOfShares)).toEqual([1, 40, 10_000, 10_000]);
});
