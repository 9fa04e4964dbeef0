/** Hands out the user of each living sandbox: no two share one, so a limit per user is a limit per sandbox. */
import { FIRST_SANDBOX_USER } from './spec.ts';

const RANGE = 65_536;

export class UserIds {
  readonly #taken = new Set<number>();
  #next = 0;

  /** The next free number after the last one given, so that a number is not reused at once. */
  take(): number {
    for (let step = 0; step < RANGE; step += 1) {
      const candidate = FIRST_SANDBOX_USER + ((this.#next + step) % RANGE);
      if (this.#taken.has(candidate)) continue;
      this.#taken.add(candidate);
      this.#next = candidate - FIRST_SANDBOX_USER + 1;
      return candidate;
    }
    throw new Error('no sandbox user is free');
  }

  release(userId: number): void {
    this.#taken.delete(userId);
  }
}
