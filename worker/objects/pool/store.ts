/** SQL of the pool object: used nonces, the hosts of the pool, and those that are none any more. */
import * as z from 'zod';
import { type HostFault, HostFaultSchema } from '../../../shared/host-api.ts';
import { HostIdSchema } from '../../../shared/ids.ts';
import { SnapshotRequirementsSchema } from '../../../shared/snapshot.ts';
import { EnrollmentTokenStore } from './enrollment-token-store.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS used_nonce (nonce TEXT PRIMARY KEY, expires_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS host (
  host_id TEXT PRIMARY KEY,
  pool TEXT NOT NULL,
  public_key TEXT NOT NULL UNIQUE,
  state TEXT NOT NULL,
  sandboxes INTEGER NOT NULL,
  capacity INTEGER NOT NULL,
  degraded INTEGER NOT NULL,
  images TEXT NOT NULL,
  enrolled_at INTEGER NOT NULL,
  last_seen_at INTEGER
) WITHOUT ROWID;
-- What it restores snapshots with.
CREATE TABLE IF NOT EXISTS host_traits (host_id TEXT PRIMARY KEY, traits TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS host_fault (host_id TEXT NOT NULL, fault TEXT NOT NULL, PRIMARY KEY (host_id, fault))
  WITHOUT ROWID;
-- Hosts that an operator took out for good, and their keys.
CREATE TABLE IF NOT EXISTS revoked_host (
  host_id TEXT PRIMARY KEY, public_key TEXT NOT NULL UNIQUE, revoked_at INTEGER NOT NULL
) WITHOUT ROWID;
-- Sessions on their way to a host, which does not count them yet.
CREATE TABLE IF NOT EXISTS placement (session_id TEXT PRIMARY KEY, host_id TEXT NOT NULL, placed_at INTEGER NOT NULL)
  WITHOUT ROWID;
`;

const ImagesSchema = z.array(z.object({ name: z.string(), digest: z.string() }));

const HostTraitsSchema = SnapshotRequirementsSchema.omit({ image: true });
export type HostTraits = z.infer<typeof HostTraitsSchema>;

const HostRowSchema = z.object({
  host_id: HostIdSchema,
  pool: z.string(),
  state: z.enum(['connected', 'suspect', 'dead']),
  sandboxes: z.number(),
  placed: z.number(),
  capacity: z.number(),
  degraded: z.number().transform((flag) => flag === 1),
  images: z.string().transform((text) => ImagesSchema.parse(JSON.parse(text))),
  faults: z.string().transform((text) => z.array(HostFaultSchema).parse(JSON.parse(text))),
  traits: z
    .string()
    .transform((text) => HostTraitsSchema.parse(JSON.parse(text)))
    .nullable(),
  last_seen_at: z.number().nullable(),
});
export type HostRow = z.infer<typeof HostRowSchema>;

const HOST_COLUMNS = 'host_id, pool, state, sandboxes, capacity, degraded, images, last_seen_at';
/** A session placed this long before a report has reached its host, and is counted in it. */
const ON_THE_WAY_MS = 1_000;
/** Hosts that never came or are long dead make room for new ones. */
const MAX_HOSTS = 10_000;

export class PoolStore {
  readonly #storage: DurableObjectStorage;
  readonly #sql: SqlStorage;
  readonly tokens: EnrollmentTokenStore;
  /** Counting reads every row. */
  #hostCount: number | undefined;

  constructor(storage: DurableObjectStorage) {
    this.#storage = storage;
    this.#sql = storage.sql;
    this.tokens = new EnrollmentTokenStore(storage.sql);
    this.#sql.exec(SCHEMA);
  }

  get hostCount(): number {
    this.#hostCount ??= Number(this.#sql.exec('SELECT COUNT(*) AS count FROM host').one().count);
    return this.#hostCount;
  }

  /** Uses up the token and the nonce and adds the host: all of it, or nothing and `undefined`. */
  enroll(
    attempt: {
      tokenSha256: string;
      nonce: string;
      nonceExpiresAtMs: number;
      publicKey: string;
      hostId: string;
    },
    nowMs: number,
  ): { hostId: string; pool: string } | undefined {
    return this.#storage.transactionSync(() => {
      this.#sql.exec('DELETE FROM used_nonce WHERE expires_at < ?', nowMs);
      const nonce = this.#sql.exec(
        'INSERT INTO used_nonce (nonce, expires_at) VALUES (?, ?) ON CONFLICT DO NOTHING',
        attempt.nonce,
        attempt.nonceExpiresAtMs,
      );
      if (nonce.rowsWritten === 0) return undefined;
      if (this.#isRevoked(attempt.publicKey)) return undefined;
      const pool = this.tokens.use(attempt.tokenSha256, nowMs);
      if (pool === undefined) return undefined;
      const host = this.#addHost(attempt, pool, nowMs);
      this.tokens.usedBy(attempt.tokenSha256, host.hostId);
      return host;
    });
  }

  /** A key that enrols again keeps its host id, so that sessions of that host stay with it. */
  #addHost(
    host: { hostId: string; publicKey: string },
    pool: string,
    nowMs: number,
  ): { hostId: string; pool: string } {
    this.#hostCount = undefined;
    const row = this.#sql
      .exec(
        `INSERT INTO host (host_id, pool, public_key, state, sandboxes, capacity, degraded, images, enrolled_at)
         VALUES (?, ?, ?, 'dead', 0, 0, 0, '[]', ?)
         ON CONFLICT (public_key) DO UPDATE SET enrolled_at = excluded.enrolled_at RETURNING host_id`,
        host.hostId,
        pool,
        host.publicKey,
        nowMs,
      )
      .one();
    this.#sql.exec(
      `DELETE FROM host WHERE host_id IN (
         SELECT host_id FROM host WHERE state = 'dead' ORDER BY COALESCE(last_seen_at, enrolled_at) DESC LIMIT -1 OFFSET ?)`,
      MAX_HOSTS,
    );
    const hostId = HostRowSchema.shape.host_id.parse(row.host_id);
    this.#sql.exec('DELETE FROM host_fault WHERE host_id NOT IN (SELECT host_id FROM host)');
    this.#sql.exec('DELETE FROM host_traits WHERE host_id NOT IN (SELECT host_id FROM host)');
    // An operator made the token that it enrolled with: what was held against it is over.
    this.setFault(hostId, 'receipts_refused', false);
    return { hostId, pool };
  }

  /** A certificate of a key that is revoked is worth nothing, so no new one is made for it. */
  #isRevoked(publicKey: string): boolean {
    return this.#sql.exec('SELECT 1 FROM revoked_host WHERE public_key = ?', publicKey).toArray().length > 0;
  }

  /** The host is none of the pool any more, and its key enrols no more. False for one that never was. */
  revokeHost(hostId: string, nowMs: number): boolean {
    this.#hostCount = undefined;
    return this.#storage.transactionSync(() => {
      this.#sql.exec(
        `INSERT INTO revoked_host (host_id, public_key, revoked_at) SELECT host_id, public_key, ? FROM host WHERE host_id = ?
         ON CONFLICT DO NOTHING`,
        nowMs,
        hostId,
      );
      for (const table of ['host', 'host_fault', 'host_traits', 'placement']) {
        this.#sql.exec(`DELETE FROM ${table} WHERE host_id = ?`, hostId);
      }
      return this.#sql.exec('SELECT 1 FROM revoked_host WHERE host_id = ?', hostId).toArray().length > 0;
    });
  }

  /** `placed` of each leaves out `sessionId`: a session that is placed again takes one place. */
  hosts(sessionId = ''): HostRow[] {
    return this.#sql
      .exec(
        `SELECT ${HOST_COLUMNS}, (SELECT COUNT(*) FROM placement AS other
           WHERE other.host_id = host.host_id AND other.session_id <> ?) AS placed,
           (SELECT json_group_array(fault) FROM host_fault WHERE host_fault.host_id = host.host_id) AS faults,
           (SELECT traits FROM host_traits WHERE host_traits.host_id = host.host_id) AS traits
         FROM host ORDER BY host_id`,
        sessionId,
      )
      .toArray()
      .map((row) => HostRowSchema.parse(row));
  }

  /** What a host says of itself, at `lastSeenAtMs`. */
  report(report: {
    hostId: string;
    state: HostRow['state'];
    sandboxes: number;
    capacity: number;
    degraded: boolean;
    skewed: boolean;
    images: HostRow['images'] | null;
    traits?: HostTraits | undefined;
    lastSeenAtMs: number;
  }): void {
    this.#sql.exec(
      `UPDATE host SET state = ?, sandboxes = ?, capacity = ?, degraded = ?, images = COALESCE(?, images),
         last_seen_at = ? WHERE host_id = ?`,
      report.state,
      report.sandboxes,
      report.capacity,
      report.degraded ? 1 : 0,
      report.images === null ? null : JSON.stringify(report.images),
      report.lastSeenAtMs,
      report.hostId,
    );
    this.setFault(report.hostId, 'clock_skew', report.skewed);
    if (report.traits !== undefined) this.#setTraits(report.hostId, report.traits);
    this.#sql.exec(
      'DELETE FROM placement WHERE host_id = ? AND placed_at < ?',
      report.hostId,
      report.lastSeenAtMs - ON_THE_WAY_MS,
    );
  }

  #setTraits(hostId: string, traits: HostTraits): void {
    this.#sql.exec(
      `INSERT INTO host_traits (host_id, traits) SELECT host_id, ?2 FROM host WHERE host_id = ?1
       ON CONFLICT (host_id) DO UPDATE SET traits = excluded.traits`,
      hostId,
      JSON.stringify(traits),
    );
  }

  setFault(hostId: string, fault: HostFault, isThere: boolean): void {
    if (isThere) {
      this.#sql.exec(
        'INSERT INTO host_fault (host_id, fault) SELECT host_id, ? FROM host WHERE host_id = ? ON CONFLICT DO NOTHING',
        fault,
        hostId,
      );
    } else this.#sql.exec('DELETE FROM host_fault WHERE host_id = ? AND fault = ?', hostId, fault);
  }

  addPlacement(placement: { sessionId: string; hostId: string }, nowMs: number): void {
    this.#sql.exec(
      `INSERT INTO placement (session_id, host_id, placed_at) VALUES (?, ?, ?)
       ON CONFLICT (session_id) DO UPDATE SET host_id = excluded.host_id, placed_at = excluded.placed_at`,
      placement.sessionId,
      placement.hostId,
      nowMs,
    );
  }

  removePlacement(sessionId: string): void {
    this.#sql.exec('DELETE FROM placement WHERE session_id = ?', sessionId);
  }

  removePlacementsBefore(atMs: number): void {
    this.#sql.exec('DELETE FROM placement WHERE placed_at < ?', atMs);
  }
}
