/** Hands out the user of each living sandbox: no two share one, so a limit per user is a limit per sandbox. */
import { FIRST_SANDBOX_USER, LAST_SANDBOX_USER } from './spec.ts';

const RANGE = LAST_SANDBOX_USER - FIRST_SANDBOX_USER + 1;

export class UserIds {
  readonly #taken = new Set<number>();
  /** How many sandboxes beside the first one have a user. */
  readonly #shared = new Map<number, number>();
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

  /**
   * The user that a checkpoint was made with, whose files and processes keep it. Another sandbox may have it here: the
   * limits of a user are counted in each sandbox by itself.
   */
  share(userId: number): void {
    this.#shared.set(userId, (this.#shared.get(userId) ?? 0) + (this.#taken.has(userId) ? 1 : 0));
    this.#taken.add(userId);
  }

  release(userId: number): void {
    const others = this.#shared.get(userId) ?? 0;
    if (others > 1) this.#shared.set(userId, others - 1);
    else if (others === 1) this.#shared.delete(userId);
    else this.#taken.delete(userId);
  }
}
