/** Whether the host takes one more sandbox: its own caps, its capacity, and the memory and disk that are really free. */
import { failure, type Outcome, success } from '../../shared/errors.ts';
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
  const exceeded = LIMIT_NAMES.find((name) => limits[name] > caps[name]);
  if (exceeded !== undefined) {
    return failure('limits_exceeded', `${exceeded}: at most ${caps[exceeded]} here, not ${limits[exceeded]}`);
  }
  if (admission.sandboxes >= admission.capacity) {
    return failure('host_full', `${admission.capacity} sandboxes live here already`);
  }
  const room = admission.availableMemoryBytes - admission.promisedMemoryBytes - MEMORY_RESERVE_BYTES;
  if (limits.memory_bytes > room) {
    return failure('host_full', 'the host has too little free memory for these limits');
  }
  // A write that finds the disk of the host full kills a sandbox: its storage is a mapped file.
  if (limits.workspace_bytes + limits.tmp_bytes > admission.availableDiskBytes - DISK_RESERVE_BYTES) {
    return failure('host_full', 'the host has too little free disk for these limits');
  }
  return success(null);
}

/** MemAvailable of /proc/meminfo in bytes: what can be had without swapping. */
export function availableMemory(meminfo: string): number {
  const kilobytes = /^MemAvailable:\s+(\d+) kB$/m.exec(meminfo)?.[1];
  if (kilobytes === undefined) throw new Error('/proc/meminfo names no MemAvailable');
  return Number(kilobytes) * 1024;
}
