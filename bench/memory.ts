/** Resident memory of a process over the time of a measurement. */
import { readFileSync } from 'node:fs';

const SAMPLE_INTERVAL_MS = 100;

export interface MemoryWatch {
  readonly firstBytes: number;
  /** The highest sample so far. */
  highestBytes: () => number;
  stop: () => void;
}

export function watchMemory(pid: number): MemoryWatch {
  const firstBytes = residentBytes(pid);
  let highest = firstBytes;
  const sample = (): number => {
    highest = Math.max(highest, residentBytes(pid));
    return highest;
  };
  const timer = setInterval(sample, SAMPLE_INTERVAL_MS);
  return { firstBytes, highestBytes: sample, stop: () => clearInterval(timer) };
}

function residentBytes(pid: number): number {
  const kibibytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Number(kibibytes ?? 0) * 1024;
}
