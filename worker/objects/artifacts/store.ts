/** SQL of the object that knows the artifacts of one tenant. */
import * as z from 'zod';
import { type Artifact, ArtifactSchema } from '../../../shared/artifact.ts';
import { json } from '../session/rows/records.ts';
import { type UntoldStorage, UntoldStorageSchema } from '../storage-book.ts';
import type { NewArtifact } from './port.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS artifact (
  artifact_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  subject TEXT NOT NULL,
  name TEXT NOT NULL,
  -- 'making', 'ready', 'removed' until its bytes are gone, then 'swept' for as long as an address may still name it.
  state TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  -- Of one that is being made, as many as it may have.
  bytes INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  source TEXT,
  swept_at INTEGER,
  -- Bytes that the tenant was last told it takes; null before the first word.
  told_bytes INTEGER
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS artifact_by_name ON artifact (subject, name) WHERE state = 'ready';
CREATE INDEX IF NOT EXISTS artifact_by_age ON artifact (state, created_at);
`;

const RowSchema = z.object({
  artifact_id: z.string(),
  name: z.string(),
  created_at: z.number(),
  bytes: z.number(),
  sha256: z.string(),
  source: json(ArtifactSchema.shape.source.unwrap()).nullable(),
});
export type ArtifactRow = z.infer<typeof RowSchema>;
const COLUMNS = Object.keys(RowSchema.shape).join(', ');

const PlaceSchema = z.object({ artifact_id: z.string(), tenant: z.string() });
export type ArtifactPlace = z.infer<typeof PlaceSchema>;

const TAKEN_BYTES = "CASE state WHEN 'swept' THEN 0 ELSE bytes END";

export class ArtifactsStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  has(artifactId: string): boolean {
    return this.#sql.exec('SELECT 1 FROM artifact WHERE artifact_id = ?', artifactId).toArray().length > 0;
  }

  /** Of those that are there, or are being made. */
  count(): number {
    const row = this.#sql
      .exec("SELECT COUNT(*) AS count FROM artifact WHERE state IN ('making', 'ready')")
      .one();
    return Number(row.count);
  }

  add({ artifactId, tenant, subject, name, maxBytes, source }: NewArtifact, nowMs: number): void {
    this.#sql.exec(
      `INSERT INTO artifact (artifact_id, tenant, subject, name, state, created_at, bytes, sha256, source)
       VALUES (?, ?, ?, ?, 'making', ?, ?, '', ?)`,
      artifactId,
      tenant,
      subject,
      name,
      nowMs,
      maxBytes,
      source === null ? null : JSON.stringify(source),
    );
  }

  /** The row as it is then; undefined where the artifact is not being made. The one of its name before it is removed. */
  complete(
    { artifactId, bytes, sha256 }: { artifactId: string; bytes: number; sha256: string },
    nowMs: number,
  ): ArtifactRow | undefined {
    this.#sql.exec(
      `UPDATE artifact SET state = 'removed' WHERE state = 'ready' AND artifact_id <> ?1
       AND (subject, name) = (SELECT subject, name FROM artifact WHERE artifact_id = ?1 AND state = 'making')`,
      artifactId,
    );
    this.#sql.exec(
      `UPDATE artifact SET state = 'ready', bytes = ?, sha256 = ?, created_at = ?
       WHERE artifact_id = ? AND state = 'making'`,
      bytes,
      sha256,
      nowMs,
      artifactId,
    );
    return this.#rows("artifact_id = ? AND state = 'ready'", artifactId)[0];
  }

  find(subject: string, name: string): ArtifactRow | undefined {
    return this.#rows("subject = ? AND name = ? AND state = 'ready'", subject, name)[0];
  }

  list(subject: string, after: string, limit: number): ArtifactRow[] {
    return this.#rows(
      "subject = ? AND state = 'ready' AND name > ? ORDER BY name LIMIT ?",
      subject,
      after,
      limit,
    );
  }

  remove(artifactId: string): void {
    this.#sql.exec(
      "UPDATE artifact SET state = 'removed' WHERE artifact_id = ? AND state IN ('making', 'ready')",
      artifactId,
    );
  }

  /** Those that were begun, or were made, before a moment. */
  removeBefore(state: 'making' | 'ready', createdAtMs: number): void {
    this.#sql.exec(
      "UPDATE artifact SET state = 'removed' WHERE state = ? AND created_at < ?",
      state,
      createdAtMs,
    );
  }

  oldest(state: 'making' | 'ready'): number | null {
    return this.#least('SELECT MIN(created_at) AS at FROM artifact WHERE state = ?', state);
  }

  /** Those whose bytes are to go. */
  removed(limit: number): ArtifactPlace[] {
    return this.#sql
      .exec("SELECT artifact_id, tenant FROM artifact WHERE state = 'removed' LIMIT ?", limit)
      .toArray()
      .map((row) => PlaceSchema.parse(row));
  }

  markSwept(artifactId: string, nowMs: number): void {
    this.#sql.exec(
      "UPDATE artifact SET state = 'swept', swept_at = ? WHERE artifact_id = ?",
      nowMs,
      artifactId,
    );
  }

  delete(artifactId: string): void {
    this.#sql.exec('DELETE FROM artifact WHERE artifact_id = ?', artifactId);
  }

  deleteSweptBefore(sweptAtMs: number): void {
    this.#sql.exec(
      "DELETE FROM artifact WHERE state = 'swept' AND told_bytes = 0 AND swept_at < ?",
      sweptAtMs,
    );
  }

  oldestSwept(): number | null {
    return this.#least("SELECT MIN(swept_at) AS at FROM artifact WHERE state = 'swept'");
  }

  /** Of which the tenant does not know yet what they take. */
  untold(limit: number): UntoldStorage[] {
    return this.#sql
      .exec(
        `SELECT artifact_id AS id, tenant, subject, ${TAKEN_BYTES} AS bytes FROM artifact
         WHERE told_bytes IS NOT ${TAKEN_BYTES} LIMIT ?`,
        limit,
      )
      .toArray()
      .map((row) => UntoldStorageSchema.parse(row));
  }

  markTold(artifactId: string, bytes: number): void {
    this.#sql.exec('UPDATE artifact SET told_bytes = ? WHERE artifact_id = ?', bytes, artifactId);
  }

  /** The tenant whose artifacts these are; undefined while there are none. */
  tenant(): string | undefined {
    const [row] = this.#sql.exec('SELECT artifact_id, tenant FROM artifact LIMIT 1').toArray();
    return row === undefined ? undefined : PlaceSchema.parse(row).tenant;
  }

  #least(query: string, ...bindings: string[]): number | null {
    const { at } = this.#sql.exec(query, ...bindings).one();
    return at === null ? null : Number(at);
  }

  #rows(where: string, ...bindings: (string | number)[]): ArtifactRow[] {
    return this.#sql
      .exec(`SELECT ${COLUMNS} FROM artifact WHERE ${where}`, ...bindings)
      .toArray()
      .map((row) => RowSchema.parse(row));
  }
}

export function artifactView(row: ArtifactRow): Artifact {
  return {
    name: row.name,
    artifact_id: row.artifact_id,
    bytes: row.bytes,
    sha256: row.sha256,
    source: row.source,
    created_at: new Date(row.created_at).toISOString(),
  };
}
