/** SQL of what executions wrote and gave: their rows lie together, in the order in which they came. */
import * as z from 'zod';
import { StreamNameSchema } from '../../../../shared/execution.ts';
import { type OutputPiece, type PartPiece, PartPieceSchema } from '../rows/records.ts';
import { ROWS_PER_EXECUTION, TAIL_ROWS_FROM } from '../rows/row-numbers.ts';

const OutputRowSchema = z.object({
  id: z.number(),
  stream: StreamNameSchema,
  offset: z.number(),
  bytes: z.instanceof(ArrayBuffer).transform((buffer) => new Uint8Array(buffer)),
});

export interface StoredOutput extends OutputPiece {
  /** Number of the row within its execution. */
  index: number;
}

export interface OutputExtent {
  nextRow: number;
  nextTailRow: number;
  nextPart: number;
  stdoutEnd: number;
  stderrEnd: number;
  windowBytes: number;
}

const OutputExtentSchema = z.object({
  nextRow: z.number(),
  nextTailRow: z.number(),
  nextPart: z.number(),
  stdoutEnd: z.number(),
  stderrEnd: z.number(),
  windowBytes: z.number(),
}) satisfies z.ZodType<OutputExtent>;

export class OutputRows {
  readonly #sql: SqlStorage;

  constructor(sql: SqlStorage) {
    this.#sql = sql;
  }

  insert(n: number, index: number, piece: OutputPiece): void {
    this.#sql.exec(
      'INSERT INTO output (id, stream, offset, bytes) VALUES (?, ?, ?, ?)',
      n * ROWS_PER_EXECUTION + index,
      piece.stream,
      piece.offset,
      piece.bytes,
    );
  }

  /** Rows of an execution with numbers in [from, to), in order: as many as come to `maxBytes`, at least one. */
  rows(n: number, range: { from: number; to: number }, maxBytes: number): StoredOutput[] {
    const base = n * ROWS_PER_EXECUTION;
    const rows: StoredOutput[] = [];
    let bytes = 0;
    const cursor = this.#sql.exec(
      'SELECT id, stream, offset, bytes FROM output WHERE id >= ? AND id < ? ORDER BY id',
      base + range.from,
      // Beyond them lie the rows of the next execution.
      base + Math.min(range.to, ROWS_PER_EXECUTION),
    );
    for (const raw of cursor) {
      const { id, ...piece } = OutputRowSchema.parse(raw);
      rows.push({ ...piece, index: id - base });
      bytes += piece.bytes.length;
      if (bytes >= maxBytes) break;
    }
    return rows;
  }

  all(n: number): StoredOutput[] {
    return this.rows(n, { from: 0, to: ROWS_PER_EXECUTION }, Number.POSITIVE_INFINITY);
  }

  /** What of an execution's output is kept: ends and bytes are those of the replay window. */
  extent(n: number): OutputExtent {
    const base = n * ROWS_PER_EXECUTION;
    const row = this.#sql
      .exec(
        `SELECT COALESCE(MAX(CASE WHEN id < ?2 THEN id END) + 1 - ?1, 0) AS nextRow,
           COALESCE(MAX(CASE WHEN id >= ?2 THEN id END) + 1 - ?1, ?2 - ?1) AS nextTailRow,
           COALESCE(MAX(CASE WHEN id < ?2 AND stream = 'stdout' THEN offset + LENGTH(bytes) END), 0) AS stdoutEnd,
           COALESCE(MAX(CASE WHEN id < ?2 AND stream = 'stderr' THEN offset + LENGTH(bytes) END), 0) AS stderrEnd,
           COALESCE(SUM(CASE WHEN id < ?2 THEN LENGTH(bytes) END), 0) AS windowBytes,
           (SELECT COUNT(*) FROM part WHERE part.id >= ?1 AND part.id < ?3) AS nextPart
         FROM output WHERE id >= ?1 AND id < ?3`,
        base,
        base + TAIL_ROWS_FROM,
        base + ROWS_PER_EXECUTION,
      )
      .one();
    return OutputExtentSchema.parse(row);
  }

  insertPart(n: number, index: number, part: PartPiece): void {
    this.#sql.exec(
      'INSERT INTO part (id, field, idx, mime, last, bytes) VALUES (?, ?, ?, ?, ?, ?)',
      n * ROWS_PER_EXECUTION + index,
      part.field,
      part.idx,
      part.mime,
      Number(part.last),
      part.bytes,
    );
  }

  parts(n: number): PartPiece[] {
    return this.#sql
      .exec(
        'SELECT field, idx, mime, last, bytes FROM part WHERE id >= ? AND id < ? ORDER BY id',
        n * ROWS_PER_EXECUTION,
        (n + 1) * ROWS_PER_EXECUTION,
      )
      .toArray()
      .map((row) => PartPieceSchema.parse(row));
  }
}
