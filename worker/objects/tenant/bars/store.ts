/** SQL of what is revoked, beside single tokens. */
import * as z from 'zod';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS bar (
  kind TEXT NOT NULL, value TEXT NOT NULL, until_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
  PRIMARY KEY (kind, value)
) WITHOUT ROWID;
`;

const RowSchema = z.object({ kind: z.enum(['subject', 'api_key']), value: z.string(), until_at: z.number() });
export type BarRow = z.infer<typeof RowSchema>;

export class BarStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  put(row: BarRow, expiresAtMs: number): void {
    this.#sql.exec(
      'INSERT OR REPLACE INTO bar (kind, value, until_at, expires_at) VALUES (?, ?, ?, ?)',
      row.kind,
      row.value,
      row.until_at,
      expiresAtMs,
    );
  }

  /** Those whose tokens may still live. */
  live(nowMs: number): BarRow[] {
    this.#sql.exec('DELETE FROM bar WHERE expires_at < ?', nowMs);
    return this.#sql
      .exec('SELECT kind, value, until_at FROM bar')
      .toArray()
      .map((row) => RowSchema.parse(row));
  }
}
