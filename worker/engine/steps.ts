/** Steps of a run whose values are data with a schema: what the engine kept is parsed like anything from outside. */
import type { WorkflowStep } from 'cloudflare:workers';
import { NonRetryableError } from 'cloudflare:workflows';
import type * as z from 'zod';
import { ERRORS } from '../../shared/errors.ts';
import { Refusal } from '../middleware/refusal.ts';

/** Of a step that fails by what may be otherwise in a moment: an object that restarts, a host without room. */
const RETRIES = { limit: 8, delay: 1_000, backoff: 'exponential' } as const;
const DEFAULT_TIMEOUT_MS = 60_000;

export class Steps {
  readonly #step: WorkflowStep;

  constructor(step: WorkflowStep) {
    this.#step = step;
  }

  /** Names are what a step is known by when a run is taken up again: each is used once. */
  async once<T>(
    name: string,
    schema: z.ZodType<T>,
    act: () => Promise<T>,
    timeoutMs = DEFAULT_TIMEOUT_MS,
  ): Promise<T> {
    const text = await this.#step.do(name, { retries: RETRIES, timeout: timeoutMs }, async () => {
      try {
        return JSON.stringify(await act());
      } catch (error: unknown) {
        if (!(error instanceof Refusal) || ERRORS[error.failure.code].retryable) throw error;
        throw new NonRetryableError(`${error.failure.code}: ${error.failure.detail}`);
      }
    });
    return schema.parse(JSON.parse(text));
  }

  sleep(name: string, delayMs: number): Promise<void> {
    return this.#step.sleep(name, delayMs);
  }
}

/** Why a step came to nothing, in one line. */
export function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return (text.split('\n')[0] ?? '').slice(0, 1_000);
}
