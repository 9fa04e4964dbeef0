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

/** A proof may say that it is of a moment ahead of the edge's clock, and is of this moment so long after that. */
const REMEMBERED_MS = (MAX_PROOF_AGE_S + 2 * MAX_CLOCK_SKEW_S) * 1_000;

const SCHEMA = `
CREATE TABLE IF NOT EXISTS proof (proof_id TEXT PRIMARY KEY, until_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS proof_by_until ON proof (until_at);
`;

export class ProofsObject extends DurableObject<Env> implements ProofsPort {
  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec(SCHEMA);
  }

  async take(proofId: string): Promise<Outcome<boolean>> {
    const { sql } = this.ctx.storage;
    const nowMs = Date.now();
    sql.exec('DELETE FROM proof WHERE until_at < ?', nowMs);
    const { rowsWritten } = sql.exec(
      'INSERT OR IGNORE INTO proof (proof_id, until_at) VALUES (?, ?)',
      proofId,
      nowMs + REMEMBERED_MS,
    );
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(nowMs + REMEMBERED_MS);
    return success(rowsWritten > 0);
  }

  /** A key that is used no more leaves nothing. */
  override async alarm(): Promise<void> {
    const { sql } = this.ctx.storage;
    sql.exec('DELETE FROM proof WHERE until_at < ?', Date.now());
    const isEmpty = sql.exec('SELECT 1 FROM proof LIMIT 1').toArray().length === 0;
    if (!isEmpty) await this.ctx.storage.setAlarm(Date.now() + REMEMBERED_MS);
  }
}
