/** Waits for a condition instead of sleeping. */
import { PATIENCE_MS } from '../patience.ts';

const LOOK_INTERVAL_MS = 50;
const STILL_FOR_MS = 500;

/** The first value of `look` that is not `undefined`; fails with what was waited for when the time is over. */
export async function until<Value>(
  what: string,
  withinMs: number,
  look: () => Value | undefined | Promise<Value | undefined>,
): Promise<Value> {
  const startedMs = performance.now();
  for (;;) {
    const value = await look();
    if (value !== undefined) return value;
    if (performance.now() - startedMs > withinMs) throw new Error(`not within ${withinMs} ms: ${what}`);
    await pause(LOOK_INTERVAL_MS);
  }
}

/** The value once it has stayed the same for a while: what was under way has come. */
export function untilStill<Value>(what: string, look: () => Value): Promise<Value> {
  let last = look();
  return until(what, PATIENCE_MS, async () => {
    const before = last;
    await pause(STILL_FOR_MS);
    last = look();
    return last === before ? last : undefined;
  });
}

/** For a rhythm that is part of a scenario ("every 500 ms"), not to wait for something. */
export function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, durationMs));
}

/** How long the work took, beside its value. */
export async function timed<Value>(work: Promise<Value>): Promise<{ value: Value; elapsedMs: number }> {
  const startedMs = performance.now();
  const value = await work;
  return { value, elapsedMs: performance.now() - startedMs };
}
