/**
 * What an isolate refuses when it has more to do than it can. Once its own work is late for longer than a burst, only so
 * many requests are under way at a time, and they are shared fairly: of tenants, and of the subjects of a tenant, who asks
 * for less than its share is not refused. A refusal costs a look into memory and touches no object. There are the fewer
 * places the longer the thread is late, or the edge takes for what it lets in (as CoDel does it: while the quickest is slow).
 */
import { fairCap } from './fair-cap.ts';
import { type Asking, UnderWay } from './under-way.ts';

export const WINDOW_MS = 100;
/** A burst may be late for so long. */
export const BURST_MS = 1_000;
/** And has so many requests: what more comes meanwhile would wait for seconds, each behind all of them. */
export const BURST_REQUESTS = 256;
/** No burst is told from a hiccup of the thread in less. */
const HICCUP_MS = 2 * WINDOW_MS;
/** So few are never refused: it is not they who make the isolate late. */
export const FEW = 16;
const CUT = 0.9;
const GROWTH = 1.05;
/** Windows in a row without being late or refusing anything, before everything is let in again. */
const CALM_WINDOWS = 10;

export class Shedding {
  readonly #underWay = new UnderWay();
  #windowEndsAtMs = Number.NEGATIVE_INFINITY;
  #lateSinceMs: number | undefined;
  #letInWhileLate = 0;
  /** Of what was answered in this stretch of time, and is known to have been quick or slow. */
  readonly #answered = { quick: 0, slow: 0 };
  /** How many may be under way; undefined while as many are as there are. */
  #places: number | undefined;
  #perTenant = 0;
  /** Of tenants that ask for more than their share. */
  readonly #perSubject = new Map<string, number>();
  #hasRefused = false;
  #calmWindows = 0;

  get isOn(): boolean {
    return this.#places !== undefined;
  }

  /**
   * `isLate`: whether the isolate is now. Who is let in gets what is to be called when it was answered, with whether the
   * edge's own share of it was slow, where that is known; undefined for who is not.
   */
  admit(asking: Asking, nowMs: number, isLate: boolean): ((isSlow?: boolean) => void) | undefined {
    if (nowMs >= this.#windowEndsAtMs) this.#next(nowMs, isLate);
    this.#underWay.came(asking);
    if (this.#places !== undefined && !this.#fits(asking)) {
      this.#hasRefused = true;
      return undefined;
    }
    this.#letInWhileLate += 1;
    const ended = this.#underWay.begin(asking);
    return (isSlow) => {
      ended();
      if (isSlow !== undefined) this.#answered[isSlow ? 'slow' : 'quick'] += 1;
    };
  }

  #fits(asking: Asking): boolean {
    const perSubject = this.#perSubject.get(asking.tenant);
    return perSubject === undefined
      ? this.#underWay.ofTenant(asking.tenant) < this.#perTenant
      : this.#underWay.ofSubject(asking) < perSubject;
  }

  #next(nowMs: number, isLate: boolean): void {
    this.#windowEndsAtMs = nowMs + WINDOW_MS;
    this.#lateSinceMs = isLate ? (this.#lateSinceMs ?? nowMs) : undefined;
    if (!isLate) this.#letInWhileLate = 0;
    const { quick, slow } = this.#answered;
    const isSlow = slow > 0 && quick === 0;
    Object.assign(this.#answered, { quick: 0, slow: 0 });
    this.#calmWindows = isLate || this.#hasRefused ? 0 : this.#calmWindows + 1;
    this.#hasRefused = false;
    const ended = this.#underWay.next(nowMs);
    this.#places = this.#placesNow(isLate || isSlow, nowMs);
    this.#share(ended);
  }

  #placesNow(isBehind: boolean, nowMs: number): number | undefined {
    if (this.#places !== undefined) {
      if (this.#calmWindows >= CALM_WINDOWS) return undefined;
      return isBehind ? Math.max(FEW, this.#places * CUT) : this.#places * GROWTH;
    }
    return this.#isOverloaded(nowMs) && this.#underWay.total > FEW ? FEW : undefined;
  }

  /** Only the thread's own lateness says so: that calls are slow may be because of their host. */
  #isOverloaded(nowMs: number): boolean {
    if (this.#lateSinceMs === undefined) return false;
    const lateForMs = nowMs - this.#lateSinceMs;
    return lateForMs >= BURST_MS || (lateForMs >= HICCUP_MS && this.#letInWhileLate > BURST_REQUESTS);
  }

  /** By what each asked for in the stretch of time that ends. */
  #share({ tenants, subjectsOf }: ReturnType<UnderWay['next']>): void {
    this.#perSubject.clear();
    if (this.#places === undefined) return;
    this.#perTenant = fairCap([...tenants.values()], this.#places);
    for (const [tenant, came] of tenants) {
      if (came > this.#perTenant) this.#perSubject.set(tenant, fairCap(subjectsOf(tenant), this.#perTenant));
    }
  }
}
