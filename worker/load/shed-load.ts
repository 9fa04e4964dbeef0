/** The overload protection of one isolate: asked once for each request whose caller is known, before anything is done for it. */
import { type Failure, failure } from '../../shared/errors.ts';
import { Refusal } from '../middleware/refusal.ts';
import { LoopLag } from './loop-lag.ts';
import { Shedding } from './shedding.ts';
import type { Asking } from './under-way.ts';

/** Those who are refused at one moment do not come back at one moment. */
const RETRY_AFTER_S = { least: 1, spread: 3 };

const lag = new LoopLag();
const shedding = new Shedding();

/**
 * Throws the refusal where this isolate has too much to do for what the caller asks on top. Later than `lateMs` is late.
 * What it gives is called when the request is answered.
 */
export function shedLoad(
  caller: Asking,
  lateMs: number,
  waitUntil: (promise: Promise<unknown>) => void,
): () => void {
  const answered = admitLoad(caller, lateMs, waitUntil);
  if (answered !== undefined) return answered;
  throw new Refusal(overloaded());
}

/** Whether anything is refused now. */
export function isShedding(): boolean {
  return shedding.isOn;
}

/** Undefined where the caller is refused. */
export function admitLoad(
  caller: Asking,
  lateMs: number,
  waitUntil: (promise: Promise<unknown>) => void,
): (() => void) | undefined {
  const nowMs = performance.now();
  lag.probe(nowMs, (delayMs) => {
    const later = scheduler.wait(delayMs);
    waitUntil(later);
    return later;
  });
  return shedding.admit(caller, nowMs, lag.at(nowMs) > lateMs);
}

export function overloaded(): Failure {
  return failure('overloaded', 'this part of the edge has too much to do; nothing was done for the request', {
    retry_after_s: RETRY_AFTER_S.least + Math.floor(Math.random() * RETRY_AFTER_S.spread),
  });
}
