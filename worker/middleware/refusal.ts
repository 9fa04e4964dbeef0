/** A failure on its way to the one place that renders it, with headers that its answer needs. */
import type { Failure, Outcome } from '../../shared/errors.ts';

export class Refusal extends Error {
  override name = 'Refusal';
  readonly failure: Failure;
  readonly headers: Readonly<Record<string, string>>;

  constructor(failure: Failure, headers: Readonly<Record<string, string>> = {}) {
    super(failure.detail);
    this.failure = failure;
    this.headers = headers;
  }
}

/** The value of an outcome; a failure leaves the request's road here. */
export function unwrap<T>(outcome: Outcome<T>): T {
  if (outcome.ok) return outcome.value;
  throw new Refusal(outcome);
}

/** The other way round: a refusal is a value again, for whom it does not end a request. */
export async function outcomeOf<T>(road: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
  try {
    return await road();
  } catch (error: unknown) {
    if (error instanceof Refusal) return error.failure;
    throw error;
  }
}
