/** What became of grants of one session that left no trace in the journal: refused, or carried out at once. */
import type { Failure } from '../../shared/errors.ts';

/** Older ones are refused by their number or their expiry. */
const MAX_REMEMBERED_GRANTS = 4096;

export class GrantMemory {
  readonly #byJti = new Map<string, Failure | 'done'>();

  get(jti: string): Failure | 'done' | undefined {
    return this.#byJti.get(jti);
  }

  remember(jti: string, what: Failure | 'done'): void {
    this.#byJti.set(jti, what);
    const [oldest] = this.#byJti.keys();
    if (this.#byJti.size > MAX_REMEMBERED_GRANTS && oldest !== undefined) this.#byJti.delete(oldest);
  }
}
