/** SQL of what is held of the tenant's storage by things that outlive a call: snapshots, artifacts, outputs of sessions. */
import * as z from 'zod';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS storage_hold (
  id TEXT PRIMARY KEY, subject TEXT NOT NULL, bytes INTEGER NOT NULL, n INTEGER NOT NULL, changed_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS storage_hold_given_back ON storage_hold (changed_at) WHERE bytes = 0;
`;

const HoldRowSchema = z.object({ subject: z.string(), bytes: z.number(), n: z.number() });
export type HoldRow = z.infer<typeof HoldRowSchema>;

const SumRowSchema = z.object({ subject: z.string(), bytes: z.number() });

export class HoldStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  find(id: string): HoldRow | undefined {
    const [row] = this.#sql.exec('SELECT subject, bytes, n FROM storage_hold WHERE id = ?', id).toArray();
    return row === undefined ? undefined : HoldRowSchema.parse(row);
  }

  put(id: string, { subject, bytes, n }: HoldRow, nowMs: number): void {
    this.#sql.exec(
      'INSERT OR REPLACE INTO storage_hold (id, subject, bytes, n, changed_at) VALUES (?, ?, ?, ?, ?)',
      id,
      subject,
      bytes,
      n,
      nowMs,
    );
  }

  forgetGivenBackBefore(changedAtMs: number): void {
    this.#sql.exec('DELETE FROM storage_hold WHERE bytes = 0 AND changed_at < ?', changedAtMs);
  }

  sums(): { subject: string; bytes: number }[] {
    return this.#sql
      .exec('SELECT subject, SUM(bytes) AS bytes FROM storage_hold WHERE bytes > 0 GROUP BY subject')
      .toArray()
      .map((row) => SumRowSchema.parse(row));
  }
}
