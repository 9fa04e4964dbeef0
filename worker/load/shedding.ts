/**
 * What an isolate refuses when it has more to do than it can. While its own work is late for longer than a burst, only so
 * many requests are under way at a time, and they are shared fairly: of tenants, and of the subjects of a tenant, who asks
 * for less than its share is not refused. A refusal costs a look into memory and touches no object.
 */
import { fairCap } from './fair-cap.ts';
import { type Asking, UnderWay } from './under-way.ts';

export const WINDOW_MS = 100;
/** A burst may be late for so long. */
export const BURST_MS = 1_000;
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
   * `isLate`: whether the isolate is now. Who is let in gets what is to be called when it was answered; undefined for who
   * is not.
   */
  admit(asking: Asking, nowMs: number, isLate: boolean): (() => void) | undefined {
    if (nowMs >= this.#windowEndsAtMs) this.#next(nowMs, isLate);
    this.#underWay.came(asking);
    if (this.#places === undefined || this.#fits(asking)) return this.#underWay.begin(asking);
    this.#hasRefused = true;
    return undefined;
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
    this.#calmWindows = isLate || this.#hasRefused ? 0 : this.#calmWindows + 1;
    this.#hasRefused = false;
    const ended = this.#underWay.next(nowMs);
    this.#places = this.#placesNow(isLate, nowMs);
    this.#share(ended);
  }

  #placesNow(isLate: boolean, nowMs: number): number | undefined {
    if (this.#places !== undefined) {
      if (this.#calmWindows >= CALM_WINDOWS) return undefined;
      return isLate ? Math.max(FEW, this.#places * CUT) : this.#places * GROWTH;
    }
    const isOverloaded = this.#lateSinceMs !== undefined && nowMs - this.#lateSinceMs >= BURST_MS;
    return isOverloaded && this.#underWay.total > FEW ? FEW : undefined;
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
