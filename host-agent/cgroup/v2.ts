/** cgroups version 2: one hierarchy for everything. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type CgroupLimits,
  type Cgroups,
  type CgroupUsage,
  requireName,
  requireParent,
  type ThawFiles,
} from './cgroups.ts';
import {
  childNames,
  keyedNumber,
  killMembers,
  readControl,
  removeGroup,
  removeIfEmpty,
  toNumber,
  writeControl,
  writeControlIfThere,
} from './control-file.ts';
import { V2_CONTROLLERS } from './mounts.ts';

export class CgroupsV2 implements Cgroups {
  readonly version = 2;
  readonly #mount: string;
  readonly #parent: string;

  constructor(mount: string, parent: string) {
    this.#mount = mount;
    this.#parent = requireParent(parent);
    const there = (readControl(join(mount, 'cgroup.controllers')) ?? '').trim().split(/\s+/);
    const missing = V2_CONTROLLERS.find((controller) => !there.includes(controller));
    if (missing !== undefined) throw new Error(`the machine has no cgroup controller ${missing}`);
  }

  get thawFiles(): ThawFiles {
    return { parentDir: join(this.#mount, this.#parent), file: 'cgroup.freeze', value: '0' };
  }

  pathOf(name: string): string {
    return join(this.#parent, requireName(name));
  }

  async create(name: string, limits: CgroupLimits): Promise<void> {
    await this.#delegateControllers(limits.io === undefined ? V2_CONTROLLERS : [...V2_CONTROLLERS, 'io']);
    await mkdir(this.#dir(name), { recursive: true });
    this.setLimits(name, limits);
  }

  setLimits(name: string, limits: CgroupLimits): void {
    const group = this.#dir(name);
    writeControl(join(group, 'memory.max'), limits.memoryBytes);
    // Absent on a kernel without swap, where nothing is to be forbidden.
    if (readControl(join(group, 'memory.swap.max')) !== undefined) {
      writeControl(join(group, 'memory.swap.max'), 0);
    }
    writeControl(join(group, 'cpu.max'), `${limits.cpuQuotaUs} ${limits.cpuPeriodUs}`);
    writeControl(join(group, 'cpu.weight'), weightOfShares(limits.cpuShares));
    writeControl(join(group, 'pids.max'), limits.pids);
    if (limits.io !== undefined) {
      const { disk, readBytesPerS = 'max', writeBytesPerS = 'max' } = limits.io;
      writeControl(join(group, 'io.max'), `${disk} rbps=${readBytesPerS} wbps=${writeBytesPerS}`);
    }
  }

  /** A group has only the controllers that every group above it hands down. */
  async #delegateControllers(controllers: readonly string[]): Promise<void> {
    let directory = this.#mount;
    for (const part of ['', ...this.#parent.split('/').filter(Boolean)]) {
      directory = join(directory, part);
      await mkdir(directory, { recursive: true });
      const file = join(directory, 'cgroup.subtree_control');
      const handed = (readControl(file) ?? '').split(/\s+/);
      const missing = controllers.filter((controller) => !handed.includes(controller));
      if (missing.length > 0) {
        writeControl(file, missing.map((controller) => `+${controller}`).join(' '));
      }
    }
  }

  usage(name: string): CgroupUsage | undefined {
    const group = this.#dir(name);
    const events = readControl(join(group, 'memory.events'));
    const peak = readControl(join(group, 'memory.peak'));
    const current = readControl(join(group, 'memory.current'));
    const cpu = readControl(join(group, 'cpu.stat'));
    if (events === undefined || cpu === undefined) return undefined;
    return {
      oomKills: keyedNumber(events, 'oom_kill') ?? 0,
      cpuMs: (keyedNumber(cpu, 'usage_usec') ?? 0) / 1e3,
      // memory.peak is there since Linux 5.19.
      peakMemoryBytes: toNumber(peak ?? current ?? '') ?? 0,
    };
  }

  /** The kernel resets a peak only for one open file, so the peak stays that of the sandbox's life. */
  resetPeak(_name: string): void {}

  freeze(name: string): void {
    writeControlIfThere(join(this.#dir(name), 'cgroup.freeze'), 1);
  }

  thaw(name: string): void {
    writeControlIfThere(join(this.#dir(name), 'cgroup.freeze'), 0);
  }

  isFrozen(name: string): boolean {
    return keyedNumber(readControl(join(this.#dir(name), 'cgroup.events')) ?? '', 'frozen') === 1;
  }

  /** What is frozen dies without running again. */
  kill(name: string): void {
    this.#kill(name);
    this.thaw(name);
  }

  #kill(name: string): void {
    const file = join(this.#dir(name), 'cgroup.kill');
    if (readControl(join(this.#dir(name), 'cgroup.procs')) === undefined) return;
    try {
      writeControl(file, 1);
    } catch {
      // Before Linux 5.14 there is no such file.
      killMembers(this.#dir(name));
    }
  }

  async remove(name: string): Promise<boolean> {
    this.kill(name);
    return removeGroup(this.#dir(name));
  }

  async list(): Promise<string[]> {
    return (await childNames(join(this.#mount, this.#parent))).sort();
  }

  async removeParent(): Promise<void> {
    await removeIfEmpty(join(this.#mount, this.#parent));
  }

  #dir(name: string): string {
    return join(this.#mount, this.#parent, requireName(name));
  }
}

/** The kernel documentation's own conversion from shares (2 to 262144) to weights (1 to 10000). */
export function weightOfShares(shares: number): number {
  return Math.min(10_000, Math.max(1, Math.round(1 + ((shares - 2) * 9999) / 262_142)));
}
