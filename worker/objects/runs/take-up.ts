/**
 * Runs that a restart of the whole runtime cut. The engine of Cloudflare takes them up by itself; that of a development
 * stack keeps their steps, but goes on only when it is told to.
 */
import type { RunInstance } from './run-namespace.ts';

/** Runs that were begun or taken up since the runtime started. */
const underWay = new Set<string>();
const PAUSE_LOOKS = 50;
const LOOK_MS = 20;

export function isUnderWay(runId: string): boolean {
  return underWay.has(runId);
}

export function markUnderWay(runId: string): void {
  underWay.add(runId);
}

export function forgetRun(runId: string): void {
  underWay.delete(runId);
}

/** A paused run is begun again from its kept steps. */
export async function takeUp(runId: string, instance: RunInstance): Promise<void> {
  markUnderWay(runId);
  await instance.pause();
  for (let look = 0; look < PAUSE_LOOKS; look += 1) {
    if ((await instance.status()).status === 'paused') break;
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
  await instance.resume();
}
