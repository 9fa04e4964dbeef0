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

  /** `undefined` where it has no end within the time; nothing of who waited stays behind then. */
  async within(executionId: string, waitMs: number): Promise<Answer | undefined> {
    const { promise, resolve } = Promise.withResolvers<Answer | undefined>();
    const waiting = this.#waiting.get(executionId) ?? [];
    this.#waiting.set(executionId, waiting);
    waiting.push(resolve);
    const timer = setTimeout(() => resolve(undefined), waitMs);
    const answer = await promise;
    clearTimeout(timer);
    if (answer === undefined) this.#leave(executionId, resolve);
    return answer;
  }

  #leave(executionId: string, resolve: (answer: Answer) => void): void {
    const others = this.#waiting.get(executionId)?.filter((other) => other !== resolve) ?? [];
    if (others.length === 0) this.#waiting.delete(executionId);
    else this.#waiting.set(executionId, others);
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
