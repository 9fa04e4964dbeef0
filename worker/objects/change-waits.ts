/** Those who wait for a change of something, each no longer than it said: nothing of them stays behind. */
export class ChangeWaits {
  readonly #waiting = new Map<string, Set<() => void>>();

  /** Resolves at the next change, or after that time. */
  async wait(key: string, waitMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiting = this.#waiting.get(key) ?? new Set();
    this.#waiting.set(key, waiting.add(resolve));
    const timer = setTimeout(resolve, waitMs);
    await promise;
    clearTimeout(timer);
    waiting.delete(resolve);
    if (waiting.size === 0) this.#waiting.delete(key);
  }

  changed(key: string): void {
    for (const resolve of this.#waiting.get(key) ?? []) resolve();
  }
}
