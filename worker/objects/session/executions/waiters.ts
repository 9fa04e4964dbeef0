/** Callers that wait for the end of an execution. They live as long as their calls: none survives an eviction. */
import type { Outcome } from '../../../../shared/errors.ts';
import type { Execution } from '../../../../shared/execution.ts';

type Answer = Outcome<Execution>;

export class Waiters {
  readonly #waiting = new Map<string, ((answer: Answer) => void)[]>();

  wait(executionId: string): Promise<Answer> {
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const others = this.#waiting.get(executionId);
    if (others === undefined) this.#waiting.set(executionId, [resolve]);
    else others.push(resolve);
    return promise;
  }

  has(executionId: string): boolean {
    return this.#waiting.has(executionId);
  }

  /** `answer` is only put together when somebody waits for it. */
  answer(executionId: string, answer: () => Answer): void {
    const waiting = this.#waiting.get(executionId);
    if (waiting === undefined) return;
    this.#waiting.delete(executionId);
    const value = answer();
    for (const resolve of waiting) resolve(value);
  }
}
