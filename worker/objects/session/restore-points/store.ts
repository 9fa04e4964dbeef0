/** SQL of the snapshots that a session may go back to, by the number of the execution that each was made before. */
import * as z from 'zod';
import { SnapshotIdSchema } from '../../../../shared/ids.ts';
import { ShellStandingSchema } from '../../../../shared/shell-standing.ts';
import { SnapshotRequirementsSchema } from '../../../../shared/snapshot.ts';
import { LateTables } from '../../schema.ts';
import { json } from '../rows/records.ts';

const SCHEMA = 'CREATE TABLE IF NOT EXISTS restore_point (n INTEGER PRIMARY KEY, snapshot TEXT NOT NULL)';

export const PointSnapshotSchema = z.object({
  snapshotId: SnapshotIdSchema,
  manifestSha256: z.string(),
  requirements: SnapshotRequirementsSchema,
  generation: z.number(),
  bytes: z.number(),
  storedBytes: z.number(),
  /** Where the shell stands in it; null: where the session began, or nobody said. */
  shell: ShellStandingSchema.nullable().default(null),
});
export type PointSnapshot = z.infer<typeof PointSnapshotSchema>;

const PointSchema = z.object({ n: z.number(), snapshot: json(PointSnapshotSchema) });
export type RestorePoint = z.infer<typeof PointSchema>;

export class RestorePointStore {
  readonly #tables: LateTables;

  constructor(context: DurableObjectState) {
    const schema = { name: 'restore-points', table: 'restore_point', statements: SCHEMA };
    this.#tables = new LateTables(context.storage, schema);
  }

  /** Oldest first. */
  all(): RestorePoint[] {
    if (!this.#tables.areMade) return [];
    return this.#tables.sql
      .exec('SELECT n, snapshot FROM restore_point ORDER BY n')
      .toArray()
      .map((row) => PointSchema.parse(row));
  }

  insert(n: number, snapshot: PointSnapshot): void {
    this.#tables.sql.exec(
      'INSERT INTO restore_point (n, snapshot) VALUES (?, ?)',
      n,
      JSON.stringify(snapshot),
    );
  }

  delete(n: number): void {
    this.#tables.sql.exec('DELETE FROM restore_point WHERE n = ?', n);
  }
}
