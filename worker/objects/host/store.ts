/** SQL of the host object: its one row, and the sessions whose sandboxes it holds. */
import * as z from 'zod';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS host (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  host_id TEXT NOT NULL,
  pool TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  state TEXT NOT NULL,
  -- When the last control link ended; null while there is one.
  disconnected_at INTEGER
);
CREATE TABLE IF NOT EXISTS session (tenant TEXT NOT NULL, session_id TEXT NOT NULL, PRIMARY KEY (tenant, session_id))
  WITHOUT ROWID;
-- What the operator wants of the host, connected or not.
CREATE TABLE IF NOT EXISTS wish (id INTEGER PRIMARY KEY CHECK (id = 1), draining INTEGER NOT NULL);
-- What the operator of its machine wants, as its agent said last.
CREATE TABLE IF NOT EXISTS own_wish (id INTEGER PRIMARY KEY CHECK (id = 1), draining INTEGER NOT NULL);
-- That an operator took it out, for good.
CREATE TABLE IF NOT EXISTS revocation (id INTEGER PRIMARY KEY CHECK (id = 1), at_ms INTEGER NOT NULL);
-- How many hosts the pool had as it was told of this one last.
CREATE TABLE IF NOT EXISTS pool_size (id INTEGER PRIMARY KEY CHECK (id = 1), hosts INTEGER NOT NULL);
-- When sessions refused what the host signed.
CREATE TABLE IF NOT EXISTS refused_receipt (at_ms INTEGER NOT NULL);
`;

const HostRecordSchema = z.object({
  host_id: z.string(),
  pool: z.string(),
  epoch: z.number(),
  state: z.enum(['connected', 'suspect', 'dead']),
  disconnected_at: z.number().nullable(),
});
export type HostRecord = z.infer<typeof HostRecordSchema>;

const SessionRowSchema = z.object({ tenant: z.string(), session_id: z.string() });
export type SessionRow = z.infer<typeof SessionRowSchema>;
const FIRST: SessionRow = { tenant: '', session_id: '' };

export class HostStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  host(): HostRecord | undefined {
    const [row] = this.#sql.exec('SELECT host_id, pool, epoch, state, disconnected_at FROM host').toArray();
    return row === undefined ? undefined : HostRecordSchema.parse(row);
  }

  /** A new control link: the epoch rises with each. */
  beginEpoch(host: { hostId: string; pool: string }): number {
    const row = this.#sql
      .exec(
        `INSERT INTO host (id, host_id, pool, epoch, state) VALUES (1, ?, ?, 1, 'connected')
         ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1, state = 'connected', disconnected_at = NULL RETURNING epoch`,
        host.hostId,
        host.pool,
      )
      .one();
    return Number(row.epoch);
  }

  setState(state: HostRecord['state']): void {
    this.#sql.exec('UPDATE host SET state = ?', state);
  }

  setDisconnected(atMs: number): void {
    this.#sql.exec('UPDATE host SET disconnected_at = ?', atMs);
  }

  setDraining(draining: boolean): void {
    this.#sql.exec(
      'INSERT INTO wish (id, draining) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET draining = ?1',
      draining ? 1 : 0,
    );
  }

  /** As the operator of the machine wants it, and its agent says. */
  setDrainingItself(draining: boolean): void {
    this.#sql.exec(
      'INSERT INTO own_wish (id, draining) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET draining = ?1',
      draining ? 1 : 0,
    );
  }

  isDrainingItself(): boolean {
    return this.#sql.exec('SELECT draining FROM own_wish').toArray()[0]?.draining === 1;
  }

  hostsOfPool(): number {
    return Number(this.#sql.exec('SELECT hosts FROM pool_size').toArray()[0]?.hosts ?? 0);
  }

  setHostsOfPool(hosts: number): void {
    if (hosts === this.hostsOfPool()) return;
    this.#sql.exec(
      'INSERT INTO pool_size (id, hosts) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET hosts = ?1',
      hosts,
    );
  }

  isDraining(): boolean {
    return this.#sql.exec('SELECT draining FROM wish').toArray()[0]?.draining === 1;
  }

  /** A host that never had a link is one from here on. */
  revoke(host: { hostId: string; pool: string }, atMs: number): void {
    this.#sql.exec('INSERT INTO revocation (id, at_ms) VALUES (1, ?) ON CONFLICT DO NOTHING', atMs);
    this.#sql.exec(
      `INSERT INTO host (id, host_id, pool, epoch, state, disconnected_at) VALUES (1, ?, ?, 0, 'dead', ?)
       ON CONFLICT (id) DO UPDATE SET state = 'dead'`,
      host.hostId,
      host.pool,
      atMs,
    );
  }

  get revokedAtMs(): number | null {
    const [row] = this.#sql.exec('SELECT at_ms FROM revocation').toArray();
    return row === undefined ? null : Number(row.at_ms);
  }

  addSession(session: SessionRow): void {
    this.#sql.exec(
      'INSERT INTO session (tenant, session_id) VALUES (?, ?) ON CONFLICT DO NOTHING',
      session.tenant,
      session.session_id,
    );
  }

  removeSession(session: SessionRow): void {
    this.#sql.exec(
      'DELETE FROM session WHERE tenant = ? AND session_id = ?',
      session.tenant,
      session.session_id,
    );
  }

  /** Adds a refusal; gives how many there were since `sinceMs`, and forgets the older ones. */
  addRefusedReceipt(atMs: number, sinceMs: number): number {
    this.#sql.exec('DELETE FROM refused_receipt WHERE at_ms < ?', sinceMs);
    this.#sql.exec('INSERT INTO refused_receipt (at_ms) VALUES (?)', atMs);
    return Number(this.#sql.exec('SELECT COUNT(*) AS count FROM refused_receipt').one().count);
  }

  clearRefusedReceipts(): void {
    this.#sql.exec('DELETE FROM refused_receipt');
  }

  /** In the order of their names, those after `after`. */
  sessions(limit: number, after: SessionRow = FIRST): SessionRow[] {
    return this.#sql
      .exec(
        'SELECT tenant, session_id FROM session WHERE (tenant, session_id) > (?, ?) ORDER BY tenant, session_id LIMIT ?',
        after.tenant,
        after.session_id,
        limit,
      )
      .toArray()
      .map((row) => SessionRowSchema.parse(row));
  }
}
