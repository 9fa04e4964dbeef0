/** Small files of the cgroup file systems, and the directories that hold them. */
import { readFileSync, writeFileSync } from 'node:fs';
import { readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { killProcess } from '../process/process-table.ts';

export function hasCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && 'code' in error && codes.some((code) => code === error.code);
}

/** Undefined when the file or its group does not exist. */
export function readControl(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error: unknown) {
    // ENODEV: the group went away while it was read.
    if (hasCode(error, 'ENOENT', 'ENODEV')) return undefined;
    throw error;
  }
}

/** Never creates the file: a control file that is not there is a controller that is not there. */
export function writeControl(path: string, value: number | string): void {
  try {
    writeFileSync(path, String(value), { flag: 'r+' });
  } catch (error: unknown) {
    throw new Error(`cannot write ${value} to ${path}`, { cause: error });
  }
}

/** Of a group that may be gone: then nothing happens. */
export function writeControlIfThere(path: string, value: number | string): void {
  try {
    writeFileSync(path, String(value), { flag: 'r+' });
  } catch (error: unknown) {
    if (!hasCode(error, 'ENOENT', 'ENODEV'))
      throw new Error(`cannot write ${value} to ${path}`, { cause: error });
  }
}

/** The number after `key` in a file of `key value` lines. */
export function keyedNumber(text: string, key: string): number | undefined {
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${key} `));
  return line === undefined ? undefined : toNumber(line.slice(key.length + 1));
}

export function toNumber(text: string): number | undefined {
  const trimmed = text.trim();
  return /^\d+$/.test(trimmed) ? Number(trimmed) : undefined;
}

export async function childNames(directory: string): Promise<string[]> {
  try {
    const entries = await readdir(directory, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  } catch (error: unknown) {
    if (hasCode(error, 'ENOENT')) return [];
    throw error;
  }
}

export function killMembers(groupDirectory: string): void {
  const members = (readControl(join(groupDirectory, 'cgroup.procs')) ?? '').split('\n').filter(Boolean);
  for (const member of members) {
    const pid = toNumber(member);
    // A member of another process namespace reads as 0.
    if (pid !== undefined && pid > 1) killProcess(pid);
  }
}

const REMOVE_ATTEMPTS = 100;
const REMOVE_PAUSE_MS = 20;

/** Removes a group and those below it. Killed processes leave a group a little later, hence the attempts. */
export async function removeGroup(directory: string): Promise<boolean> {
  for (const child of await childNames(directory)) {
    if (!(await removeGroup(join(directory, child)))) return false;
  }
  for (let attempt = 0; attempt < REMOVE_ATTEMPTS; attempt += 1) {
    try {
      await rmdir(directory);
      return true;
    } catch (error: unknown) {
      if (hasCode(error, 'ENOENT')) return true;
      if (!hasCode(error, 'EBUSY', 'ENOTEMPTY')) throw error;
    }
    killMembers(directory);
    await wait(REMOVE_PAUSE_MS);
  }
  return false;
}

/** Removes an empty group; one that is in use stays. */
export async function removeIfEmpty(directory: string): Promise<void> {
  try {
    await rmdir(directory);
  } catch (error: unknown) {
    if (!hasCode(error, 'ENOENT', 'EBUSY', 'ENOTEMPTY')) throw error;
  }
}
