/** SQL of the pool object: its enrolment tokens, by their digests. */
import * as z from 'zod';
import type { ListedEnrollmentToken } from '../../../shared/host-api.ts';
import { HostIdSchema, Sha256Schema } from '../../../shared/ids.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS enrollment_token (
  token_sha256 TEXT PRIMARY KEY,
  pool TEXT NOT NULL,
  expires_at INTEGER NOT NULL,
  used_at INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS enrollment_token_by_age ON enrollment_token (expires_at, token_sha256);
-- How a token ended before its time.
CREATE TABLE IF NOT EXISTS enrollment_token_end (token_sha256 TEXT PRIMARY KEY, host_id TEXT, revoked_at INTEGER)
  WITHOUT ROWID;
`;

const RowSchema = z.object({
  token_sha256: Sha256Schema,
  pool: z.string(),
  expires_at: z.number(),
  used_at: z.number().nullable(),
  host_id: HostIdSchema.nullable(),
  revoked_at: z.number().nullable(),
});
type Row = z.infer<typeof RowSchema>;

/** Where a list goes on. */
export interface TokenPosition {
  expiresAtMs: number;
  tokenId: string;
}

const ID_DIGITS = 32;
/** How long a token is shown after its time, and how many at most. */
const SHOWN_MS = 30 * 86_400_000;
const MAX_SHOWN = 20_000;

const ROWS = `SELECT enrollment_token.*, host_id, revoked_at FROM enrollment_token
  LEFT JOIN enrollment_token_end USING (token_sha256)`;

export class EnrollmentTokenStore {
  readonly #sql: SqlStorage;

  constructor(sql: SqlStorage) {
    this.#sql = sql;
    this.#sql.exec(SCHEMA);
  }

  add(token: { sha256: string; pool: string; expiresAtMs: number }): void {
    this.#sql.exec(
      'INSERT INTO enrollment_token (token_sha256, pool, expires_at) VALUES (?, ?, ?)',
      token.sha256,
      token.pool,
      token.expiresAtMs,
    );
  }

  /** Those that a host could still use; what has been over for long goes. */
  liveCount(nowMs: number): number {
    this.#sql.exec(
      `DELETE FROM enrollment_token WHERE expires_at < ?1 OR (expires_at < ?2 AND token_sha256 NOT IN
         (SELECT token_sha256 FROM enrollment_token ORDER BY expires_at DESC, token_sha256 DESC LIMIT ?3))`,
      nowMs - SHOWN_MS,
      nowMs,
      MAX_SHOWN,
    );
    this.#sql.exec(
      'DELETE FROM enrollment_token_end WHERE token_sha256 NOT IN (SELECT token_sha256 FROM enrollment_token)',
    );
    const { count } = this.#sql
      .exec(
        `SELECT COUNT(*) AS count FROM enrollment_token LEFT JOIN enrollment_token_end USING (token_sha256)
         WHERE expires_at >= ? AND used_at IS NULL AND revoked_at IS NULL`,
        nowMs,
      )
      .one();
    return Number(count);
  }

  /** Uses it up; gives its pool, or undefined where it is good for nothing. */
  use(sha256: string, nowMs: number): string | undefined {
    const [row] = this.#sql
      .exec(
        `UPDATE enrollment_token SET used_at = ?1
         WHERE token_sha256 = ?2 AND used_at IS NULL AND expires_at >= ?1
           AND token_sha256 NOT IN (SELECT token_sha256 FROM enrollment_token_end WHERE revoked_at IS NOT NULL)
         RETURNING pool`,
        nowMs,
        sha256,
      )
      .toArray();
    return row === undefined ? undefined : RowSchema.shape.pool.parse(row.pool);
  }

  usedBy(sha256: string, hostId: string): void {
    this.#sql.exec('INSERT INTO enrollment_token_end (token_sha256, host_id) VALUES (?, ?)', sha256, hostId);
  }

  /** Gives it as it is then; one that a host has used stays so. Undefined where there is none. */
  revoke(tokenId: string, nowMs: number): ListedEnrollmentToken | undefined {
    const known = this.#find(tokenId);
    if (known === undefined) return undefined;
    if (listed(known, nowMs).state === 'unused') {
      this.#sql.exec(
        'INSERT INTO enrollment_token_end (token_sha256, revoked_at) VALUES (?, ?)',
        known.token_sha256,
        nowMs,
      );
    }
    const now = this.#find(tokenId);
    return now === undefined ? undefined : listed(now, nowMs);
  }

  #find(tokenId: string): Row | undefined {
    const [row] = this.#sql
      .exec(`${ROWS} WHERE token_sha256 >= ?1 AND token_sha256 < ?1 || 'g'`, digitsOf(tokenId))
      .toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }

  /** Those that end last first, after `position`. */
  list(page: { after: TokenPosition | undefined; limit: number }, nowMs: number): ListedEnrollmentToken[] {
    const { after, limit } = page;
    return this.#sql
      .exec(
        `${ROWS} WHERE (expires_at, token_sha256) < (?, ?) ORDER BY expires_at DESC, token_sha256 DESC LIMIT ?`,
        after?.expiresAtMs ?? Number.MAX_SAFE_INTEGER,
        after === undefined ? '' : digitsOf(after.tokenId),
        limit,
      )
      .toArray()
      .map((row) => listed(RowSchema.parse(row), nowMs));
  }
}

export function tokenIdOf(sha256: string): string {
  return `ent_${sha256.slice(0, ID_DIGITS)}`;
}

function digitsOf(tokenId: string): string {
  return tokenId.slice('ent_'.length);
}

function listed(row: Row, nowMs: number): ListedEnrollmentToken {
  return {
    token_id: tokenIdOf(row.token_sha256),
    pool: row.pool,
    state: stateOf(row, nowMs),
    expires_at: new Date(row.expires_at).toISOString(),
    used_at: timeOf(row.used_at),
    host_id: row.host_id,
    revoked_at: timeOf(row.revoked_at),
  };
}

function stateOf({ used_at, revoked_at, expires_at }: Row, nowMs: number): ListedEnrollmentToken['state'] {
  if (used_at !== null) return 'used';
  if (revoked_at !== null) return 'revoked';
  return expires_at < nowMs ? 'expired' : 'unused';
}

function timeOf(atMs: number | null): string | null {
  return atMs === null ? null : new Date(atMs).toISOString();
}
