/** Steps of a run whose values are data with a schema: what the engine kept is parsed like anything from outside. */
import type { WorkflowStep } from 'cloudflare:workers';
import type * as z from 'zod';

/** Of a step that fails by what is around it: an object that restarts, a host without room. */
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
    const text = await this.#step.do(name, { retries: RETRIES, timeout: timeoutMs }, async () =>
      JSON.stringify(await act()),
    );
    return schema.parse(JSON.parse(text));
  }

  sleep(name: string, delayMs: number): Promise<void> {
    return this.#step.sleep(name, delayMs);
  }
}
