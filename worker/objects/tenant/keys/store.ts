/** SQL of a tenant's API keys: their digests, never the keys. */
import * as z from 'zod';
import { ensureSchema } from '../../schema.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS api_key (
  key_id TEXT PRIMARY KEY, sha256 TEXT NOT NULL, subject TEXT NOT NULL, scopes TEXT NOT NULL, name TEXT NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER, revoked_at INTEGER, last_used_on TEXT, tool_policy TEXT
) WITHOUT ROWID;
`;

const RowSchema = z.object({
  key_id: z.string(),
  sha256: z.string(),
  subject: z.string(),
  scopes: z.string(),
  name: z.string(),
  created_at: z.number(),
  expires_at: z.number().nullable(),
  revoked_at: z.number().nullable(),
  last_used_on: z.string().nullable(),
  /** JSON. */
  tool_policy: z.string().nullable(),
});
export type ApiKeyRow = z.infer<typeof RowSchema>;

export class ApiKeyStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    const newerColumns = [['api_key', 'tool_policy', 'TEXT']] as const;
    ensureSchema(storage, { name: 'api keys', statements: SCHEMA, newerColumns });
  }

  add(row: ApiKeyRow): void {
    const columns = Object.keys(row);
    this.#sql.exec(
      `INSERT INTO api_key (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')})`,
      ...Object.values(row),
    );
  }

  find(keyId: string): ApiKeyRow | undefined {
    const [row] = this.#sql.exec('SELECT * FROM api_key WHERE key_id = ?', keyId).toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }

  /** Newest first. */
  all(): ApiKeyRow[] {
    return this.#sql
      .exec('SELECT * FROM api_key ORDER BY created_at DESC, key_id')
      .toArray()
      .map((row) => RowSchema.parse(row));
  }

  count(): number {
    return Number(this.#sql.exec('SELECT COUNT(*) AS count FROM api_key').one().count);
  }

  revoke(keyId: string, nowMs: number): void {
    this.#sql.exec('UPDATE api_key SET revoked_at = ? WHERE key_id = ? AND revoked_at IS NULL', nowMs, keyId);
  }

  usedOn(keyId: string, day: string): void {
    this.#sql.exec('UPDATE api_key SET last_used_on = ? WHERE key_id = ?', day, keyId);
  }

  /** Those that can never be used again, since before then. */
  removeDeadBefore(beforeMs: number): void {
    this.#sql.exec('DELETE FROM api_key WHERE revoked_at < ?1 OR expires_at < ?1', beforeMs);
  }
}
