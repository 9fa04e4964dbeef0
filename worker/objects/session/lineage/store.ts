/** SQL of the snapshots that the present state of a session comes from. */
import * as z from 'zod';
import { LateTables } from '../../schema.ts';
import { PointSnapshotSchema } from '../restore-points/store.ts';
import { Flag, json } from '../rows/records.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS lineage (
  place INTEGER PRIMARY KEY AUTOINCREMENT,
  -- Whether nothing but this row keeps it.
  is_own INTEGER NOT NULL,
  -- When it was taken; null where the index of snapshots has to be asked.
  taken_at INTEGER,
  snapshot TEXT NOT NULL
)`;

const AncestorSchema = z.object({
  place: z.number(),
  isOwn: Flag,
  takenAtMs: z.number().nullable(),
  snapshot: json(PointSnapshotSchema),
});
export type Ancestor = z.infer<typeof AncestorSchema>;

export class LineageStore {
  readonly #tables: LateTables;

  constructor(context: DurableObjectState) {
    this.#tables = new LateTables(context.storage, { name: 'lineage', table: 'lineage', statements: SCHEMA });
  }

  /** Newest first. */
  all(): Ancestor[] {
    if (!this.#tables.areMade) return [];
    return this.#tables.sql
      .exec('SELECT place, is_own AS isOwn, taken_at AS takenAtMs, snapshot FROM lineage ORDER BY place DESC')
      .toArray()
      .map((row) => AncestorSchema.parse(row));
  }

  add({ isOwn, takenAtMs, snapshot }: Omit<Ancestor, 'place'>): void {
    this.#tables.sql.exec(
      'INSERT INTO lineage (is_own, taken_at, snapshot) VALUES (?, ?, ?)',
      isOwn ? 1 : 0,
      takenAtMs,
      JSON.stringify(snapshot),
    );
  }

  delete(place: number): void {
    this.#tables.sql.exec('DELETE FROM lineage WHERE place = ?', place);
  }
}
