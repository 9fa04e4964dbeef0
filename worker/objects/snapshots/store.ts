/** SQL of the object that knows the snapshots of one tenant. */
import * as z from 'zod';
import { json } from '../session/records.ts';
import { type NewSnapshot, type SnapshotFacts, SnapshotFactsSchema, SnapshotKindSchema } from './port.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS snapshot (
  snapshot_id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  subject TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  -- 'making', 'ready' or 'removed'; the last until its bytes are gone.
  state TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  stored_bytes INTEGER NOT NULL,
  facts TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS snapshot_by_age ON snapshot (subject, created_at, snapshot_id);
`;

const RowSchema = z.object({
  snapshot_id: z.string(),
  session_id: z.string(),
  tenant: z.string(),
  kind: SnapshotKindSchema,
  name: z.string(),
  created_at: z.number(),
  facts: json(SnapshotFactsSchema).nullable(),
});
export type SnapshotRow = z.infer<typeof RowSchema>;

const PlaceSchema = RowSchema.pick({ tenant: true, snapshot_id: true });

const COLUMNS = 'snapshot_id, session_id, tenant, kind, name, created_at, facts';

export class SnapshotsStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  add({ snapshotId, sessionId, tenant, subject, kind, name }: NewSnapshot, nowMs: number): void {
    this.#sql.exec(
      `INSERT INTO snapshot (snapshot_id, session_id, tenant, subject, kind, name, state, created_at, stored_bytes)
       VALUES (?, ?, ?, ?, ?, ?, 'making', ?, 0) ON CONFLICT DO NOTHING`,
      snapshotId,
      sessionId,
      tenant,
      subject,
      kind,
      name,
      nowMs,
    );
  }

  complete(facts: SnapshotFacts): void {
    this.#sql.exec(
      "UPDATE snapshot SET state = 'ready', stored_bytes = ?, facts = ? WHERE snapshot_id = ? AND state <> 'removed'",
      facts.storedBytes,
      JSON.stringify(facts),
      facts.snapshotId,
    );
  }

  /** Of those that count: made or being made. */
  usage(): { count: number; storedBytes: number } {
    const row = this.#sql
      .exec(
        "SELECT COUNT(*) AS count, COALESCE(SUM(stored_bytes), 0) AS bytes FROM snapshot WHERE state <> 'removed'",
      )
      .one();
    return { count: Number(row.count), storedBytes: Number(row.bytes) };
  }

  named(subject: string, snapshotId: string): SnapshotRow | undefined {
    const [row] = this.#sql
      .exec(
        `SELECT ${COLUMNS} FROM snapshot
         WHERE snapshot_id = ? AND subject = ? AND kind = 'named' AND state = 'ready'`,
        snapshotId,
        subject,
      )
      .toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }

  /** Newest first, those after `position`. */
  list(subject: string, position: { createdAtMs: number; snapshotId: string }, limit: number): SnapshotRow[] {
    return this.#sql
      .exec(
        `SELECT ${COLUMNS} FROM snapshot
         WHERE subject = ? AND kind = 'named' AND state = 'ready' AND (created_at, snapshot_id) < (?, ?)
         ORDER BY created_at DESC, snapshot_id DESC LIMIT ?`,
        subject,
        position.createdAtMs,
        position.snapshotId,
        limit,
      )
      .toArray()
      .map((row) => RowSchema.parse(row));
  }

  markRemoved(snapshotId: string): void {
    this.#sql.exec("UPDATE snapshot SET state = 'removed' WHERE snapshot_id = ?", snapshotId);
  }

  markReleased({ sessionId, snapshotId }: { sessionId: string; snapshotId: string }): void {
    this.#sql.exec(
      `UPDATE snapshot SET state = 'removed' WHERE snapshot_id = ? AND session_id = ?
       AND (kind <> 'named' OR state = 'making')`,
      snapshotId,
      sessionId,
    );
  }

  delete(snapshotId: string): void {
    this.#sql.exec('DELETE FROM snapshot WHERE snapshot_id = ?', snapshotId);
  }

  removed(limit: number): { tenant: string; snapshotId: string }[] {
    return this.#sql
      .exec("SELECT tenant, snapshot_id FROM snapshot WHERE state = 'removed' LIMIT ?", limit)
      .toArray()
      .map((row) => PlaceSchema.parse(row))
      .map(({ tenant, snapshot_id: snapshotId }) => ({ tenant, snapshotId }));
  }

  /** Begun before `beforeMs` and not completed. */
  stale(beforeMs: number, limit: number): SnapshotRow[] {
    return this.#sql
      .exec(
        `SELECT ${COLUMNS} FROM snapshot WHERE (state = 'making' OR (state = 'ready' AND kind = 'fork'))
         AND created_at < ? LIMIT ?`,
        beforeMs,
        limit,
      )
      .toArray()
      .map((row) => RowSchema.parse(row));
  }

  oldestUnfinishedMs(): number | null {
    const row = this.#sql
      .exec(
        "SELECT MIN(created_at) AS at FROM snapshot WHERE state = 'making' OR (state = 'ready' AND kind = 'fork')",
      )
      .one();
    return row.at === null ? null : Number(row.at);
  }
}
