/** Resident memory of a process over the time of a measurement. */
import { readFileSync } from 'node:fs';

const SAMPLE_INTERVAL_MS = 100;

export interface MemoryWatch {
  /** Growth from the first sample to the highest one. */
  stop: () => { growthBytes: number };
}

export function watchMemory(pid: number): MemoryWatch {
  const first = residentBytes(pid);
  let highest = first;
  const timer = setInterval(() => {
    highest = Math.max(highest, residentBytes(pid));
  }, SAMPLE_INTERVAL_MS);
  return {
    stop: () => {
      clearInterval(timer);
      return { growthBytes: Math.max(highest, residentBytes(pid)) - first };
    },
  };
}

function residentBytes(pid: number): number {
  const kibibytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Number(kibibytes ?? 0) * 1024;
}
