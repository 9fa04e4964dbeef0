/** Callers that wait for a program: for its end, or for calls that they are to execute. */
import { isTerminal } from '../../../../shared/lifecycle.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { ProgramStore } from './store.ts';

/** A caller is told of a call of theirs after this, though other branches of the program still run. */
const PROMPT_MS = 1_000;

/** Somebody outside is asked: the caller, or who has to allow the call. */
const ASKED = ['pending', 'awaiting_approval'] as const;

export class Attendance {
  readonly #store: ProgramStore;
  readonly #wakers = new Map<number, Set<() => void>>();

  constructor(store: ProgramStore) {
    this.#store = store;
  }

  /** Resolves when the program has ended, or waits for its caller. */
  async wait(record: ExecutionRecord): Promise<void> {
    while (!isTerminal(record.status) && !this.#isDue(record)) await this.#change(record.n);
  }

  changed(n: number): void {
    for (const wake of this.#wakers.get(n) ?? []) wake();
  }

  #isDue({ n, status }: ExecutionRecord): boolean {
    const pending = this.#store.callsIn(n, ASKED);
    if (pending.length === 0) return false;
    const oldestMs = Math.min(...pending.map(({ createdAtMs }) => createdAtMs));
    if (Date.now() - oldestMs >= PROMPT_MS) return true;
    // What is being looked at may be for the caller too.
    return status === 'waiting' && this.#store.callsIn(n, ['received']).length === 0;
  }

  #change(n: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const wakers = this.#wakers.get(n) ?? new Set();
    this.#wakers.set(n, wakers.add(resolve));
    const isAsked = this.#store.callsIn(n, ASKED).length > 0;
    const timer = isAsked ? setTimeout(resolve, PROMPT_MS) : null;
    return promise.finally(() => {
      clearTimeout(timer);
      wakers.delete(resolve);
      if (wakers.size === 0) this.#wakers.delete(n);
    });
  }
}
