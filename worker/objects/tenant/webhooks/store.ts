/** Whether the tenant has webhooks, and since when: sessions send what happens only where somebody wants it. */
import * as z from 'zod';
import type { WebhookTerms } from '../ledger/account.ts';

const SCHEMA =
  'CREATE TABLE IF NOT EXISTS webhooks (id INTEGER PRIMARY KEY CHECK (id = 1), since_ms INTEGER NOT NULL);';
const RowSchema = z.object({ since_ms: z.number() });

export class WebhookFlagStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  terms(): WebhookTerms {
    const [row] = this.#sql.exec('SELECT since_ms FROM webhooks').toArray();
    return { webhooksSinceMs: row === undefined ? null : RowSchema.parse(row).since_ms };
  }

  /** Since when stays, as long as there are any. True where that is news. */
  set(has: boolean, nowMs: number): boolean {
    if (has === (this.terms().webhooksSinceMs !== null)) return false;
    if (has) this.#sql.exec('INSERT INTO webhooks (id, since_ms) VALUES (1, ?)', nowMs);
    else this.#sql.exec('DELETE FROM webhooks');
    return true;
  }
}
