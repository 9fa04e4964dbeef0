/** Tells one process from a later one with the same number. */
import { readFileSync } from 'node:fs';

/** Start time in clock ticks since boot, or undefined when there is no such process (a zombie counts as none). */
export function processStartTicks(pid: number): number | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return undefined;
  }
  // The second field is the program's name in parentheses and may itself hold spaces and parentheses.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const state = fields[0];
  const startTicks = Number(fields[19]);
  return state === 'Z' || state === 'X' || !Number.isSafeInteger(startTicks) ? undefined : startTicks;
}
