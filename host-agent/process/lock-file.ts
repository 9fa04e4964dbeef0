/** A lock file that names its holder, so that the lock of a process that died is not a lock. */
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import * as z from 'zod';
import { processStartTicks } from './process-identity.ts';

const HolderSchema = z.object({ pid: z.int().positive(), start_ticks: z.int() });
export type Lock = { release: () => void };
export type LockResult = { held: true; lock: Lock } | { held: false; holderPid: number };

/** Takes the lock or says who has it. */
export function tryLock(path: string): LockResult {
  const own = { pid: process.pid, start_ticks: processStartTicks(process.pid) ?? 0 };
  const draft = `${path}.${process.pid}`;
  writeFileSync(draft, JSON.stringify(own), { mode: 0o600 });
  try {
    for (;;) {
      try {
        // A link appears whole or not at all: nobody reads a half-written holder.
        linkSync(draft, path);
        return { held: true, lock: { release: () => releaseOwn(path, own.pid) } };
      } catch (error: unknown) {
        if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
      }
      const holder = readHolder(path);
      if (holder !== undefined && processStartTicks(holder.pid) === holder.start_ticks) {
        return { held: false, holderPid: holder.pid };
      }
      rmSync(path, { force: true });
    }
  } finally {
    rmSync(draft, { force: true });
  }
}

/** Waits for the lock; `onWait` hears once who holds it. */
export async function waitForLock(path: string, onWait: (holderPid: number) => void): Promise<Lock> {
  const pollMs = 250;
  let announced = false;
  for (;;) {
    const result = tryLock(path);
    if (result.held) return result.lock;
    if (!announced) onWait(result.holderPid);
    announced = true;
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
}

function readHolder(path: string): z.infer<typeof HolderSchema> | undefined {
  try {
    return HolderSchema.safeParse(JSON.parse(readFileSync(path, 'utf8'))).data;
  } catch {
    return undefined;
  }
}

function releaseOwn(path: string, pid: number): void {
  if (readHolder(path)?.pid === pid) rmSync(path, { force: true });
}
