/** The overload protection of one isolate: asked once for each request whose caller is known, before anything is done for it. */
import { type Failure, failure } from '../../shared/errors.ts';
import { Refusal } from '../middleware/refusal.ts';
import { LoopLag } from './loop-lag.ts';
import { Shedding } from './shedding.ts';
import type { Asking } from './under-way.ts';

/** What the edge may take of its own for a call, to the lateness that its thread may have: a call is several turns of it. */
const OWN_SHARE_TIMES = 4;
/** Those who are refused at one moment do not come back at one moment. */
const RETRY_AFTER_S = { least: 1, spread: 3 };

const lag = new LoopLag();
const shedding = new Shedding();

/** To be called when a request that was let in is answered, with what of its time was the edge's own, where that is known. */
export type Answered = (ownMs?: number) => void;

/** Throws the refusal where this isolate has too much to do for what the caller asks on top. Later than `lateMs` is late. */
export function shedLoad(
  caller: Asking,
  lateMs: number,
  waitUntil: (promise: Promise<unknown>) => void,
): Answered {
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
): Answered | undefined {
  const nowMs = performance.now();
  lag.probe(nowMs, (delayMs) => {
    const later = scheduler.wait(delayMs);
    waitUntil(later);
    return later;
  });
  const answered = shedding.admit(caller, nowMs, lag.at(nowMs) > lateMs);
  if (answered === undefined) return undefined;
  return (ownMs) => answered(ownMs === undefined ? undefined : ownMs > OWN_SHARE_TIMES * lateMs);
}

export function overloaded(): Failure {
  return failure('overloaded', 'this part of the edge has too much to do; nothing was done for the request', {
    retry_after_s: RETRY_AFTER_S.least + Math.floor(Math.random() * RETRY_AFTER_S.spread),
  });
}
