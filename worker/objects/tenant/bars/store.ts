/** SQL of what is revoked, beside single tokens. */
import * as z from 'zod';
import { type BarredCaller, RIGHTS_LIFETIME_MS } from './bars.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS bar (
  kind TEXT NOT NULL, value TEXT NOT NULL, until_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
  PRIMARY KEY (kind, value)
) WITHOUT ROWID;
-- The same, and single tokens, for those that outlive tokens.
CREATE TABLE IF NOT EXISTS revocation (
  kind TEXT NOT NULL, value TEXT NOT NULL, until_at INTEGER NOT NULL, PRIMARY KEY (kind, value)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS revocation_by_age ON revocation (until_at);
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

  /** Known for as long as rights last that outlive tokens. */
  remember(kind: 'token' | 'subject' | 'api_key', value: string, nowMs: number): void {
    this.#sql.exec('DELETE FROM revocation WHERE until_at < ?', nowMs - RIGHTS_LIFETIME_MS);
    this.#sql.exec(
      'INSERT OR REPLACE INTO revocation (kind, value, until_at) VALUES (?, ?, ?)',
      kind,
      value,
      nowMs,
    );
  }

  /** Whether rights that a token gave are taken back, or too old to know. */
  endsRights({ tokenId, subject, apiKeyId, issuedAtMs }: BarredCaller, nowMs: number): boolean {
    // Of some of former versions it is not known when their tokens were issued.
    if (issuedAtMs > 0 && issuedAtMs < nowMs - RIGHTS_LIFETIME_MS) return true;
    const found = this.#sql.exec(
      `SELECT 1 FROM revocation WHERE (kind = 'token' AND value = ?) OR (kind = 'api_key' AND value = ?)
       OR (kind = 'subject' AND value = ? AND until_at >= ?) LIMIT 1`,
      tokenId,
      apiKeyId,
      subject,
      issuedAtMs,
    );
    return found.toArray().length > 0;
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
