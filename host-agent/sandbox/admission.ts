/** Whether the host takes one more sandbox: its own caps, its capacity, and the memory and disk that are really free. */
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import type { ResourceLimits } from '../../shared/session.ts';

const MIB = 1024 * 1024;
/** Kept free for the agent and the machine. */
const MEMORY_RESERVE_BYTES = 256 * MIB;
const DISK_RESERVE_BYTES = 512 * MIB;

const LIMIT_NAMES = ['cpus', 'memory_bytes', 'processes', 'workspace_bytes', 'tmp_bytes'] as const;

export interface Admission {
  limits: ResourceLimits;
  caps: ResourceLimits;
  /** Living and starting sandboxes. */
  sandboxes: number;
  capacity: number;
  availableMemoryBytes: number;
  /** Memory that sandboxes which are starting may yet take. */
  promisedMemoryBytes: number;
  /** Of the file system that holds what sandboxes write. */
  availableDiskBytes: number;
}

export function admit(admission: Admission): Outcome<null> {
  const { limits, caps } = admission;
  const exceeded = limitsExceeded(limits, caps);
  if (exceeded !== undefined) return exceeded;
  const room = roomOf(admission);
  const lacking =
    room.sandboxes < 1
      ? 'sandboxes'
      : room.memory_bytes < limits.memory_bytes
        ? 'memory'
        : // Storage is taken as it is written: with less room than was promised, a write fails that has the right to it.
          room.disk_bytes < limits.workspace_bytes + limits.tmp_bytes
          ? 'disk'
          : undefined;
  if (lacking !== undefined) {
    return failure('host_full', `the host has too little room (${lacking}): ${JSON.stringify(room)} is free`);
  }
  return success(null);
}

/** What may yet be had; a sandbox has at most `cpus` of them, and shares them with the others. */
function roomOf(admission: Admission): Record<'sandboxes' | 'cpus' | 'memory_bytes' | 'disk_bytes', number> {
  const memoryBytes = admission.availableMemoryBytes - admission.promisedMemoryBytes - MEMORY_RESERVE_BYTES;
  return {
    sandboxes: Math.max(0, admission.capacity - admission.sandboxes),
    cpus: admission.caps.cpus,
    memory_bytes: Math.max(0, memoryBytes),
    disk_bytes: Math.max(0, admission.availableDiskBytes - DISK_RESERVE_BYTES),
  };
}

/** Undefined where the limits are within the caps. */
export function limitsExceeded(limits: ResourceLimits, caps: ResourceLimits): Failure | undefined {
  const exceeded = LIMIT_NAMES.find((name) => limits[name] > caps[name]);
  return exceeded === undefined
    ? undefined
    : failure('limits_exceeded', `${exceeded}: at most ${caps[exceeded]} here, not ${limits[exceeded]}`);
}

/** MemAvailable of /proc/meminfo in bytes: what can be had without swapping. */
export function availableMemory(meminfo: string): number {
  const kilobytes = /^MemAvailable:\s+(\d+) kB$/m.exec(meminfo)?.[1];
  if (kilobytes === undefined) throw new Error('/proc/meminfo names no MemAvailable');
  return Number(kilobytes) * 1024;
}
