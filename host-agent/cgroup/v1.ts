/** cgroups version 1: one hierarchy a controller, also on hybrid machines. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type CgroupLimits,
  type Cgroups,
  type CgroupUsage,
  type IoLimits,
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
import { type CgroupMounts, V1_CONTROLLERS } from './mounts.ts';

/** `blkio` only where the disk is bounded. */
type Controller = (typeof V1_CONTROLLERS)[number] | 'blkio';

export class CgroupsV1 implements Cgroups {
  readonly version = 1;
  readonly #mounts: CgroupMounts;
  readonly #parent: string;

  constructor(mounts: CgroupMounts, parent: string) {
    this.#mounts = mounts;
    this.#parent = requireParent(parent);
    for (const controller of V1_CONTROLLERS) this.#mountOf(controller);
  }

  get thawFiles(): ThawFiles {
    const parentDir = join(this.#mountOf('freezer'), this.#parent);
    return { parentDir, file: 'freezer.state', value: 'THAWED' };
  }

  pathOf(name: string): string {
    return join(this.#parent, requireName(name));
  }

  async create(name: string, limits: CgroupLimits): Promise<void> {
    for (const controller of V1_CONTROLLERS) await mkdir(this.#dir(controller, name), { recursive: true });
    if (limits.io !== undefined) await mkdir(this.#dir('blkio', name), { recursive: true });
    this.setLimits(name, limits);
  }

  setLimits(name: string, limits: CgroupLimits): void {
    const memory = this.#dir('memory', name);
    this.#limitMemory(memory, limits.memoryBytes);
    writeControl(join(this.#dir('cpu', name), 'cpu.cfs_period_us'), limits.cpuPeriodUs);
    writeControl(join(this.#dir('cpu', name), 'cpu.cfs_quota_us'), limits.cpuQuotaUs);
    writeControl(join(this.#dir('cpu', name), 'cpu.shares'), limits.cpuShares);
    writeControl(join(this.#dir('pids', name), 'pids.max'), limits.pids);
    if (limits.io !== undefined) this.#limitIo(this.#dir('blkio', name), limits.io);
  }

  #limitIo(group: string, { disk, readBytesPerS, writeBytesPerS }: IoLimits): void {
    // 0: no bound.
    writeControl(join(group, 'blkio.throttle.read_bps_device'), `${disk} ${readBytesPerS ?? 0}`);
    writeControl(join(group, 'blkio.throttle.write_bps_device'), `${disk} ${writeBytesPerS ?? 0}`);
  }

  /** Kernels without swap accounting lack the joint limit; there a group that never swaps comes closest. */
  #limitMemory(memory: string, memoryBytes: number): void {
    const files = [join(memory, 'memory.limit_in_bytes'), join(memory, 'memory.memsw.limit_in_bytes')];
    const [, joint = ''] = files;
    const current = toNumber(readControl(joint) ?? '');
    if (current === undefined) {
      writeControl(join(memory, 'memory.swappiness'), 0);
      files.pop();
    }
    // The joint limit may at no moment be below the other one.
    if (current !== undefined && memoryBytes > current) files.reverse();
    for (const file of files) writeControl(file, memoryBytes);
  }

  freeze(name: string): void {
    writeControlIfThere(this.#freezerState(name), 'FROZEN');
  }

  thaw(name: string): void {
    writeControlIfThere(this.#freezerState(name), 'THAWED');
  }

  isFrozen(name: string): boolean {
    return readControl(this.#freezerState(name))?.trim() === 'FROZEN';
  }

  #freezerState(name: string): string {
    return join(this.#dir('freezer', name), 'freezer.state');
  }

  usage(name: string): CgroupUsage | undefined {
    const memory = this.#dir('memory', name);
    const oomControl = readControl(join(memory, 'memory.oom_control'));
    const peak = readControl(join(memory, 'memory.max_usage_in_bytes'));
    const cpuNs = readControl(join(this.#dir('cpuacct', name), 'cpuacct.usage'));
    if (oomControl === undefined || peak === undefined || cpuNs === undefined) return undefined;
    return {
      oomKills: keyedNumber(oomControl, 'oom_kill') ?? 0,
      cpuMs: (toNumber(cpuNs) ?? 0) / 1e6,
      peakMemoryBytes: toNumber(peak) ?? 0,
    };
  }

  resetPeak(name: string): void {
    writeControlIfThere(join(this.#dir('memory', name), 'memory.max_usage_in_bytes'), 0);
  }

  /** In version 1 a signal waits until its process is thawed, which then dies of it before it does anything else. */
  kill(name: string): void {
    killMembers(this.#dir('memory', name));
    this.thaw(name);
    // What a member that was awake had just started.
    killMembers(this.#dir('memory', name));
  }

  async remove(name: string): Promise<boolean> {
    this.kill(name);
    const mounts = this.#everyMount();
    const removed = await Promise.all(mounts.map((mount) => removeGroup(join(mount, this.#parent, name))));
    return removed.every(Boolean);
  }

  async list(): Promise<string[]> {
    const names = new Set<string>();
    for (const mount of this.#everyMount()) {
      for (const name of await childNames(join(mount, this.#parent))) names.add(name);
    }
    return [...names].sort();
  }

  async removeParent(): Promise<void> {
    for (const mount of this.#everyMount()) await removeIfEmpty(join(mount, this.#parent));
  }

  /** runsc makes groups in hierarchies that we do not use, so all of them are looked at. */
  #everyMount(): string[] {
    return this.#mounts.v2 === undefined ? this.#mounts.v1All : [...this.#mounts.v1All, this.#mounts.v2];
  }

  #dir(controller: Controller, name: string): string {
    return join(this.#mountOf(controller), this.#parent, requireName(name));
  }

  #mountOf(controller: Controller): string {
    const mount = this.#mounts.v1.get(controller);
    if (mount === undefined) throw new Error(`the machine has no cgroup controller ${controller}`);
    return mount;
  }
}
