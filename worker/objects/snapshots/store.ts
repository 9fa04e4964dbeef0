/** SQL of the object that knows the snapshots of one tenant. */
import * as z from 'zod';
import { SessionIdSchema } from '../../../shared/ids.ts';
import type { SnapshotPlace } from '../../snapshots/storage.ts';
import { ensureSchema, type NewerColumn } from '../schema.ts';
import { json } from '../session/rows/records.ts';
import { type UntoldStorage, UntoldStorageSchema } from '../storage-book.ts';
import { type NewSnapshot, type SnapshotFacts, SnapshotFactsSchema, SnapshotKindSchema } from './port.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS snapshot (
  snapshot_id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  subject TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  -- 'making', 'ready', 'removed' until its bytes are gone, or 'swept' until they are looked for again.
  state TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  stored_bytes INTEGER NOT NULL,
  facts TEXT,
  -- When it is looked at next: does its session hold it, did bytes come late.
  due_at INTEGER,
  -- Bytes that the tenant was last told it takes; null before the first word.
  told_bytes INTEGER,
  -- Of a fork: the sessions that are being made of it, as JSON.
  children TEXT
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
  subject: z.string(),
  children: json(z.array(SessionIdSchema)).nullable(),
});
export type SnapshotRow = z.infer<typeof RowSchema>;

const PlaceSchema = RowSchema.pick({ tenant: true, snapshot_id: true });

/** One that is being made takes a place: how many bytes it will take is not known before. */
const TAKEN_BYTES = "CASE state WHEN 'making' THEN 1 WHEN 'swept' THEN 0 ELSE stored_bytes END";

const UNFINISHED = "(state = 'making' OR (state = 'ready' AND kind = 'fork' AND children IS NULL))";
const HELD = "(state = 'ready' AND kind IN ('suspension', 'restore_point'))";

/** One whose sessions were all made is released. */
const FORKING = "(state = 'ready' AND kind = 'fork' AND children IS NOT NULL)";

const COLUMNS = 'snapshot_id, session_id, tenant, subject, kind, name, created_at, facts, children';

const NEWER_COLUMNS: readonly NewerColumn[] = [
  ['snapshot', 'due_at', 'INTEGER'],
  ['snapshot', 'told_bytes', 'INTEGER'],
  ['snapshot', 'children', 'TEXT'],
];

export class SnapshotsStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    ensureSchema(storage, { name: 'snapshots', statements: SCHEMA, newerColumns: NEWER_COLUMNS });
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

  /** `dueAtMs` is when one that its session holds is judged anew. */
  complete(facts: SnapshotFacts, dueAtMs: number): void {
    this.#sql.exec(
      `UPDATE snapshot SET state = 'ready', stored_bytes = ?, facts = ?, due_at = ?
       WHERE snapshot_id = ? AND state IN ('making', 'ready')`,
      facts.storedBytes,
      JSON.stringify(facts),
      dueAtMs,
      facts.snapshotId,
    );
  }

  /** Whose sessions are being made until `dueAtMs`; false where it is no fork that is there. */
  setForking(snapshotId: string, { children, dueAtMs }: { children: string[]; dueAtMs: number }): boolean {
    const { rowsWritten } = this.#sql.exec(
      `UPDATE snapshot SET children = ?, due_at = ?
       WHERE snapshot_id = ? AND state = 'ready' AND kind = 'fork' AND children IS NULL`,
      JSON.stringify(children),
      dueAtMs,
      snapshotId,
    );
    return rowsWritten > 0;
  }

  setForkFailed(snapshotId: string, dueAtMs: number): boolean {
    const { rowsWritten } = this.#sql.exec(
      `UPDATE snapshot SET due_at = ? WHERE snapshot_id = ? AND ${FORKING}`,
      dueAtMs,
      snapshotId,
    );
    return rowsWritten > 0;
  }

  /** False where its sessions are not to be kept any more: from then on they may be ending, one after the other. */
  setForked(snapshotId: string, nowMs: number): boolean {
    const { rowsWritten } = this.#sql.exec(
      `UPDATE snapshot SET state = 'removed' WHERE snapshot_id = ? AND ${FORKING} AND due_at > ?`,
      snapshotId,
      nowMs,
    );
    return rowsWritten > 0;
  }

  /** Of those that count: made or being made. */
  usage(): { count: number; storedBytes: number } {
    const row = this.#sql
      .exec(
        "SELECT COUNT(*) AS count, COALESCE(SUM(stored_bytes), 0) AS bytes FROM snapshot WHERE state IN ('making', 'ready')",
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
    this.#sql.exec(
      "UPDATE snapshot SET state = 'removed' WHERE snapshot_id = ? AND state <> 'swept'",
      snapshotId,
    );
  }

  markReleased({ sessionId, snapshotId }: { sessionId: string; snapshotId: string }): void {
    this.#sql.exec(
      `UPDATE snapshot SET state = 'removed' WHERE snapshot_id = ? AND session_id = ?
       AND ((kind <> 'named' AND state = 'ready') OR state = 'making')`,
      snapshotId,
      sessionId,
    );
  }

  /** Its bytes are gone. */
  markSwept(snapshotId: string, dueAtMs: number): void {
    this.#sql.exec(
      "UPDATE snapshot SET state = 'swept', due_at = ? WHERE snapshot_id = ?",
      dueAtMs,
      snapshotId,
    );
  }

  delete(snapshotId: string): void {
    this.#sql.exec('DELETE FROM snapshot WHERE snapshot_id = ?', snapshotId);
  }

  /** Those of which the tenant does not know yet what they take. */
  untold(limit: number): UntoldStorage[] {
    return this.#sql
      .exec(
        `SELECT snapshot_id AS id, tenant, subject, ${TAKEN_BYTES} AS bytes FROM snapshot
         WHERE told_bytes IS NOT ${TAKEN_BYTES} LIMIT ?`,
        limit,
      )
      .toArray()
      .map((row) => UntoldStorageSchema.parse(row));
  }

  markTold(snapshotId: string, bytes: number): void {
    this.#sql.exec('UPDATE snapshot SET told_bytes = ? WHERE snapshot_id = ?', bytes, snapshotId);
  }

  /** Those whose bytes are to go. */
  removed(limit: number): SnapshotPlace[] {
    return this.#places("state = 'removed' LIMIT ?", limit);
  }

  /** Those whose bytes are looked for again. */
  sweptDue(nowMs: number, limit: number): SnapshotPlace[] {
    return this.#places("state = 'swept' AND told_bytes = 0 AND due_at <= ? LIMIT ?", nowMs, limit);
  }

  /** Begun before `beforeMs` and not completed, and those whose session is to be asked again. */
  stale(beforeMs: number, nowMs: number, limit: number): SnapshotRow[] {
    return this.#sql
      .exec(
        `SELECT ${COLUMNS} FROM snapshot
         WHERE (${UNFINISHED} AND created_at < ?) OR ((${HELD} OR ${FORKING}) AND COALESCE(due_at, 0) <= ?)
         LIMIT ?`,
        beforeMs,
        nowMs,
        limit,
      )
      .toArray()
      .map((row) => RowSchema.parse(row));
  }

  oldestUnfinishedMs(): number | null {
    return this.#least(`SELECT MIN(created_at) AS at FROM snapshot WHERE ${UNFINISHED}`);
  }

  nextDueMs(): number | null {
    return this.#least(
      `SELECT MIN(COALESCE(due_at, 0)) AS at FROM snapshot WHERE ${HELD} OR ${FORKING} OR state = 'swept'`,
    );
  }

  #least(query: string): number | null {
    const row = this.#sql.exec(query).one();
    return row.at === null ? null : Number(row.at);
  }

  #places(where: string, ...values: number[]): SnapshotPlace[] {
    return this.#sql
      .exec(`SELECT tenant, snapshot_id FROM snapshot WHERE ${where}`, ...values)
      .toArray()
      .map((row) => PlaceSchema.parse(row))
      .map(({ tenant, snapshot_id: snapshotId }) => ({ tenant, snapshotId }));
  }
}
