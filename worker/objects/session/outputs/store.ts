/** SQL of long outputs: what waits for its way to R2, which chunks are there, and what of them is to go. */
import * as z from 'zod';
import { type StreamName, StreamNameSchema } from '../../../../shared/execution.ts';
import { LateTables } from '../../schema.ts';
import { beyond } from '../event-logs/output-pieces.ts';
import type { OutputPiece } from '../rows/records.ts';
import { ROWS_PER_EXECUTION, TAIL_ROWS_FROM } from '../rows/row-numbers.ts';
import type { StoredChunk } from './port.ts';

const STATEMENTS = `
-- Rows are numbered like those of output: the execution's number in the upper bits.
CREATE TABLE IF NOT EXISTS spill (
  id INTEGER PRIMARY KEY, stream TEXT NOT NULL, offset INTEGER NOT NULL, bytes BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS stored_chunk (
  id INTEGER PRIMARY KEY, stream TEXT NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL
);
-- Executions of which nothing is to stay in R2.
CREATE TABLE IF NOT EXISTS dropped_output (executionId TEXT PRIMARY KEY) WITHOUT ROWID;
-- What the tenant was last told that all of it takes.
CREATE TABLE IF NOT EXISTS output_hold (id INTEGER PRIMARY KEY CHECK (id = 1), bytes INTEGER NOT NULL);
`;

const SCHEMA = { name: 'outputs', table: 'spill', statements: STATEMENTS } as const;

const DroppedSchema = z.object({ executionId: z.string() });
const PieceSchema = z.object({
  offset: z.number(),
  bytes: z.instanceof(ArrayBuffer).transform((buffer) => new Uint8Array(buffer)),
});

const ExtentSchema = z.object({
  n: z.number(),
  executionId: z.string(),
  stream: StreamNameSchema,
  end: z.number(),
  bytes: z.number(),
});
export type SpillExtent = z.infer<typeof ExtentSchema>;

const ChunkSchema = z.object({ offset: z.number(), length: z.number() });

export class OutputsStore {
  readonly #tables: LateTables;
  /** For rows of the table of outputs, which is always there. */
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#tables = new LateTables(storage, SCHEMA);
    this.#sql = storage.sql;
  }

  insertSpill(n: number, { stream, offset, bytes }: OutputPiece): void {
    this.#tables.sql.exec(
      `INSERT INTO spill (id, stream, offset, bytes)
       VALUES ((SELECT COALESCE(MAX(id) + 1, ?1) FROM spill WHERE id >= ?1 AND id < ?2), ?3, ?4, ?5)`,
      ...rangeOf(n),
      stream,
      offset,
      bytes,
    );
  }

  /** What waits, of each stream of an execution that is in the history. */
  waiting(): SpillExtent[] {
    if (!this.#tables.areMade) return [];
    return this.#tables.sql
      .exec(
        `SELECT execution.n AS n, executionId, stream, MAX(offset + LENGTH(bytes)) AS end, SUM(LENGTH(bytes)) AS bytes
         FROM spill JOIN execution ON execution.n = spill.id / ${ROWS_PER_EXECUTION} GROUP BY execution.n, stream`,
      )
      .toArray()
      .map((row) => ExtentSchema.parse(row));
  }

  /** Bytes of a stream in rows from `from` on, without a hole: as many rows as come to `maxBytes`, at least one. */
  rows(n: number, stream: StreamName, { from, maxBytes }: { from: number; maxBytes: number }): OutputPiece[] {
    const [first] = rangeOf(n);
    const found: OutputPiece[] = [];
    let end = from;
    const places: [table: string, last: number][] = [['output', first + TAIL_ROWS_FROM]];
    if (this.#tables.areMade) places.push(['spill', first + ROWS_PER_EXECUTION]);
    for (const [table, last] of places) {
      const cursor = this.#sql.exec(
        `SELECT offset, bytes FROM ${table} WHERE id >= ? AND id < ? AND stream = ? AND offset + LENGTH(bytes) > ?
         ORDER BY id`,
        first,
        last,
        stream,
        from,
      );
      for (const row of cursor) {
        const piece = beyond({ stream, ...PieceSchema.parse(row) }, end);
        if (piece === undefined) continue;
        if (piece.offset !== end) return found;
        found.push(piece);
        end += piece.bytes.length;
        if (end - from >= maxBytes) return found;
      }
    }
    return found;
  }

  /** Where the bytes of a stream that are in rows from `from` on end, or a hole begins. */
  rowsEnd(n: number, stream: StreamName, from: number): number {
    const [first] = rangeOf(n);
    const inSpill =
      'UNION ALL SELECT offset, LENGTH(bytes) FROM spill WHERE id >= ?1 AND id < ?4 AND stream = ?3';
    const cursor = this.#sql.exec(
      `SELECT offset, LENGTH(bytes) AS length FROM output WHERE id >= ?1 AND id < ?2 AND stream = ?3
       ${this.#tables.areMade ? inSpill : ''} ORDER BY offset`,
      first,
      first + TAIL_ROWS_FROM,
      stream,
      ...(this.#tables.areMade ? [first + ROWS_PER_EXECUTION] : []),
    );
    let end = from;
    for (const row of cursor) {
      const { offset, length } = ChunkSchema.parse(row);
      if (offset > end) break;
      end = Math.max(end, offset + length);
    }
    return end;
  }

  addChunk(n: number, stream: StreamName, { offset, length }: StoredChunk): void {
    this.#tables.sql.exec(
      `INSERT INTO stored_chunk (id, stream, offset, length)
       VALUES ((SELECT COALESCE(MAX(id) + 1, ?1) FROM stored_chunk WHERE id >= ?1 AND id < ?2), ?3, ?4, ?5)`,
      ...rangeOf(n),
      stream,
      offset,
      length,
    );
  }

  chunks(n: number, stream: StreamName): StoredChunk[] {
    if (!this.#tables.areMade) return [];
    return this.#tables.sql
      .exec(
        'SELECT offset, length FROM stored_chunk WHERE id >= ? AND id < ? AND stream = ? ORDER BY id',
        ...rangeOf(n),
        stream,
      )
      .toArray()
      .map((row) => ChunkSchema.parse(row));
  }

  /** Rows that end at or before `end`: they are stored, or not wanted. */
  deleteSpill(n: number, stream: StreamName, where: { endsBy: number } | { beginsFrom: number }): void {
    if (!this.#tables.areMade) return;
    const condition = 'endsBy' in where ? 'offset + LENGTH(bytes) <= ?' : 'offset >= ?';
    this.#tables.sql.exec(
      `DELETE FROM spill WHERE id >= ? AND id < ? AND stream = ? AND ${condition}`,
      ...rangeOf(n),
      stream,
      'endsBy' in where ? where.endsBy : where.beginsFrom,
    );
  }

  storedBytes(): number {
    if (!this.#tables.areMade) return 0;
    return Number(
      this.#tables.sql.exec('SELECT COALESCE(SUM(length), 0) AS bytes FROM stored_chunk').one().bytes,
    );
  }

  dropped(limit: number): string[] {
    if (!this.#tables.areMade) return [];
    return this.#tables.sql
      .exec('SELECT executionId FROM dropped_output LIMIT ?', limit)
      .toArray()
      .map((row) => DroppedSchema.parse(row).executionId);
  }

  markDropped(executionId: string): void {
    this.#tables.sql.exec(
      'INSERT INTO dropped_output (executionId) VALUES (?) ON CONFLICT DO NOTHING',
      executionId,
    );
  }

  forgetDropped(executionId: string): void {
    this.#tables.sql.exec('DELETE FROM dropped_output WHERE executionId = ?', executionId);
  }

  heldBytes(): number {
    if (!this.#tables.areMade) return 0;
    const [row] = this.#tables.sql.exec('SELECT bytes FROM output_hold').toArray();
    return Number(row?.bytes ?? 0);
  }

  setHeldBytes(bytes: number): void {
    this.#tables.sql.exec('INSERT OR REPLACE INTO output_hold (id, bytes) VALUES (1, ?)', bytes);
  }

  /** What an execution wrote goes, also of one whose row is about to go. */
  drop(n: number): void {
    if (!this.#tables.areMade) return;
    this.#tables.sql.exec(
      `INSERT INTO dropped_output (executionId) SELECT executionId FROM execution WHERE n = ?
       AND EXISTS (SELECT 1 FROM stored_chunk WHERE id >= ? AND id < ?) ON CONFLICT DO NOTHING`,
      n,
      ...rangeOf(n),
    );
    for (const table of ['spill', 'stored_chunk']) {
      this.#tables.sql.exec(`DELETE FROM ${table} WHERE id >= ? AND id < ?`, ...rangeOf(n));
    }
  }

  clear(): void {
    if (!this.#tables.areMade) return;
    for (const table of ['spill', 'stored_chunk', 'dropped_output'])
      this.#tables.sql.exec(`DELETE FROM ${table}`);
  }
}

function rangeOf(n: number): [number, number] {
  return [n * ROWS_PER_EXECUTION, (n + 1) * ROWS_PER_EXECUTION];
}
