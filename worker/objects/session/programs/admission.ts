/** Whether the calls of a program are made still: who is barred calls no more, be it by a program begun before. */
import { type Outcome, success } from '../../../../shared/errors.ts';
import { requireUnbarred } from '../../../engine/owner.ts';
import type { Env } from '../../../env.ts';
import { outcomeOf } from '../../../middleware/refusal.ts';
import type { BarredCaller } from '../../tenant/bars/bars.ts';

const TRUSTED_MS = 30_000;

export class ProgramAdmission {
  readonly #env: Env;
  /** When each program was last let call, by the number of its execution. */
  readonly #admittedAtMs = new Map<number, number>();

  constructor(env: Env) {
    this.#env = env;
  }

  async admit(n: number, owner: BarredCaller & { tenant: string }): Promise<Outcome<null>> {
    const admittedAtMs = this.#admittedAtMs.get(n);
    if (admittedAtMs !== undefined && Date.now() < admittedAtMs + TRUSTED_MS) return success(null);
    return outcomeOf(async () => {
      await requireUnbarred(this.#env, owner);
      this.#admittedAtMs.set(n, Date.now());
      return success(null);
    });
  }

  ended(n: number): void {
    this.#admittedAtMs.delete(n);
  }
}
