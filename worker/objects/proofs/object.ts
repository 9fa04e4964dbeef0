/**
 * Proofs of possession that were used: an object for each key that signs them, so that a proof is taken once however many
 * isolates it is brought to. Only a proof that verifies, for a token that is bound to its key, comes here: nobody wakes
 * an object by inventing keys, and the load of each is that of one client.
 */
import { DurableObject } from 'cloudflare:workers';
import { type Outcome, success } from '../../../shared/errors.ts';
import { MAX_CLOCK_SKEW_S } from '../../../shared/limits.ts';
import type { Env } from '../../env.ts';
import { MAX_PROOF_AGE_S } from '../../identity/dpop-proof.ts';
import type { ProofsPort } from './port.ts';
import { ProofStore } from './store.ts';

/** A proof may say that it is of a moment ahead of the edge's clock, and is of this moment so long after that. */
const REMEMBERED_MS = (MAX_PROOF_AGE_S + 2 * MAX_CLOCK_SKEW_S) * 1_000;

export class ProofsObject extends DurableObject<Env> implements ProofsPort {
  readonly #store: ProofStore;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new ProofStore(ctx.storage);
  }

  async take(proofId: string): Promise<Outcome<boolean>> {
    const nowMs = Date.now();
    this.#store.forgetBefore(nowMs);
    const isFirst = this.#store.add(proofId, nowMs + REMEMBERED_MS);
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(nowMs + REMEMBERED_MS);
    return success(isFirst);
  }

  /** A key that is used no more leaves nothing. */
  override async alarm(): Promise<void> {
    const nowMs = Date.now();
    this.#store.forgetBefore(nowMs);
    if (!this.#store.isEmpty) await this.ctx.storage.setAlarm(nowMs + REMEMBERED_MS);
  }
}
