/** Finds a child of a process by its program's name. */
import { readdirSync, readFileSync } from 'node:fs';
import { processStartTicks } from '../../host-agent/process/process-identity.ts';

export function findChildProcess(parentPid: number, name: string): number | undefined {
  for (const thread of list(`/proc/${parentPid}/task`)) {
    for (const child of read(`/proc/${parentPid}/task/${thread}/children`).split(' ')) {
      const pid = Number(child);
      if (child === '' || processStartTicks(pid) === undefined) continue;
      if (read(`/proc/${pid}/comm`).trim() === name) return pid;
    }
  }
  return undefined;
}

function list(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
