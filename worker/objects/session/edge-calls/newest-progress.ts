/** What servers say of calls under way: the newest of each. Nothing of it is written, and an object that starts anew knows none. */
import type { EdgeProgress } from '../../../tools/edge-execution.ts';

const MAX_CALLS = 32;

export interface ToldProgress extends EdgeProgress {
  /** Grows with everything that is told. */
  at: number;
}

export class NewestProgress<About extends object = object> {
  readonly #newest = new Map<string, ToldProgress & About>();
  #told = 0;

  /** How much was told so far. */
  get told(): number {
    return this.#told;
  }

  say(callId: string, progress: EdgeProgress & About): void {
    this.#told += 1;
    this.#newest.delete(callId);
    this.#newest.set(callId, { ...progress, at: this.#told });
    const [oldest] = this.#newest.keys();
    if (this.#newest.size > MAX_CALLS && oldest !== undefined) this.#newest.delete(oldest);
  }

  of(callId: string): (ToldProgress & About) | null {
    return this.#newest.get(callId) ?? null;
  }

  /** In the order in which it was told. */
  after(told: number): (ToldProgress & About)[] {
    return [...this.#newest.values()].filter(({ at }) => at > told);
  }

  end(callId: string): void {
    this.#newest.delete(callId);
  }
}
