/** The audit object: there is one, and operators act seldom. */
import { DurableObject } from 'cloudflare:workers';
import type { AuditEntry } from '../../../shared/audit.ts';
import { type Outcome, success } from '../../../shared/errors.ts';
import type { Env } from '../../env.ts';
import type { Act, AuditPort } from './port.ts';
import { AuditStore } from './store.ts';

export class AuditObject extends DurableObject<Env> implements AuditPort {
  readonly #store: AuditStore;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new AuditStore(ctx.storage);
  }

  async begin(act: Act): Promise<Outcome<number>> {
    return success(this.#store.add(act, new Date().toISOString()));
  }

  async end(n: number, { status, code }: { status: number; code: string | null }): Promise<Outcome<null>> {
    this.#store.setEnd(n, status, code);
    return success(null);
  }

  async list({ before, limit }: { before: number; limit: number }): Promise<Outcome<AuditEntry[]>> {
    return success(this.#store.before(before, limit));
  }
}
