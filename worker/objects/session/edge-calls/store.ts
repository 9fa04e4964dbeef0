/** SQL of the calls of a session that ran at the edge: enough to answer a repeated one, and to show it. */
import * as z from 'zod';
import { type Execution, ExecutionSchema } from '../../../../shared/execution.ts';
import { LateTables } from '../../schema.ts';
import { MadeCallSchema } from '../edge-receipts/made.ts';
import { json } from '../rows/records.ts';

const SCHEMA = {
  statements: `
CREATE TABLE IF NOT EXISTS edge_call (
  n INTEGER PRIMARY KEY, executionId TEXT NOT NULL UNIQUE, idempotencyKey TEXT UNIQUE, fingerprint TEXT,
  deadlineAtMs INTEGER NOT NULL, execution TEXT NOT NULL
);`,
  newerColumns: [
    ['edge_call', 'afterN', 'INTEGER NOT NULL DEFAULT 0'],
    ['edge_call', 'made', 'TEXT'],
    ['edge_call', 'endedAtMs', 'INTEGER'],
    ['edge_call', 'contentBytes', 'INTEGER NOT NULL DEFAULT 0'],
    ['edge_call', 'expired', 'INTEGER NOT NULL DEFAULT 0'],
  ],
  afterwards: `
-- So that what is asked of all of them is answered without what they gave.
CREATE INDEX IF NOT EXISTS edge_call_kept ON edge_call (endedAtMs, deadlineAtMs, idempotencyKey, contentBytes);
-- Rows of a former version say only in their execution that it has ended.
UPDATE edge_call SET endedAtMs = deadlineAtMs, contentBytes = LENGTH(execution)
WHERE endedAtMs IS NULL AND json_extract(execution, '$.status') <> 'running';`,
} as const;

const RowSchema = z.object({
  n: z.number(),
  /** Number of the execution of the session before it. */
  afterN: z.number(),
  fingerprint: z.string().nullable(),
  deadlineAtMs: z.number(),
  execution: json(ExecutionSchema),
  /** Null for one of a former version, which has no receipt. */
  made: json(MadeCallSchema).nullable(),
});
const RunningSchema = z.object({ executionId: z.string(), deadlineAtMs: z.number() });
export type EdgeCallRow = z.infer<typeof RowSchema>;

export class EdgeCallStore {
  readonly #tables: LateTables;

  constructor(storage: DurableObjectStorage) {
    this.#tables = new LateTables(storage, { name: 'edge-calls', table: 'edge_call', ...SCHEMA });
  }

  /** Gives its number. */
  insert(row: Omit<EdgeCallRow, 'n'> & { idempotencyKey: string | null }): number {
    const inserted = this.#tables.sql.exec(
      `INSERT INTO edge_call (executionId, afterN, idempotencyKey, fingerprint, deadlineAtMs, execution, made)
       VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING n`,
      row.execution.execution_id,
      row.afterN,
      row.idempotencyKey,
      row.fingerprint,
      row.deadlineAtMs,
      JSON.stringify(row.execution),
      JSON.stringify(row.made),
    );
    return Number(inserted.one().n);
  }

  /** It has ended so; `contentBytes`: what is kept of what it gave. */
  ended(
    execution: Execution,
    { endedAtMs, contentBytes }: { endedAtMs: number; contentBytes: number },
  ): void {
    this.#tables.sql.exec(
      'UPDATE edge_call SET execution = ?, endedAtMs = ?, contentBytes = ? WHERE executionId = ?',
      JSON.stringify(execution),
      endedAtMs,
      contentBytes,
      execution.execution_id,
    );
  }

  /** Only how it ended is kept of it. */
  dropContent(n: number, execution: Execution): void {
    this.#tables.sql.exec(
      'UPDATE edge_call SET execution = ?, contentBytes = 0 WHERE n = ?',
      JSON.stringify(execution),
      n,
    );
  }

  byId(executionId: string): EdgeCallRow | undefined {
    return this.#one('executionId', executionId);
  }

  byKey(idempotencyKey: string): EdgeCallRow | undefined {
    return this.#one('idempotencyKey', idempotencyKey);
  }

  /** Newest first, those before the one with number `n` that came after execution `afterN`. */
  before({ afterN, n }: { afterN: number; n: number }, limit: number): EdgeCallRow[] {
    if (!this.#tables.areMade) return [];
    const found = this.#tables.sql.exec(
      'SELECT * FROM edge_call WHERE afterN < ? OR (afterN = ? AND n < ?) ORDER BY afterN DESC, n DESC LIMIT ?',
      afterN,
      afterN,
      n,
      limit,
    );
    return found.toArray().map((row) => RowSchema.parse(row));
  }

  /** Those that run. */
  running(): { executionId: string; deadlineAtMs: number }[] {
    if (!this.#tables.areMade) return [];
    return this.#tables.sql
      .exec('SELECT executionId, deadlineAtMs FROM edge_call WHERE endedAtMs IS NULL')
      .toArray()
      .map((row) => RunningSchema.parse(row));
  }

  /** Lets ended ones go that no key since then asks for, but for the newest `kept` of them. */
  deleteUnkeyedBeyond(kept: number, sinceMs: number): void {
    if (!this.#tables.areMade) return;
    this.#tables.sql.exec(
      `DELETE FROM edge_call WHERE n IN (
         SELECT n FROM edge_call WHERE endedAtMs IS NOT NULL AND (idempotencyKey IS NULL OR deadlineAtMs < ?)
         ORDER BY n DESC LIMIT -1 OFFSET ?)`,
      sinceMs,
      kept,
    );
  }

  /** Lets the oldest ended ones go, until there are no more than so many. */
  deleteBeyond(count: number): void {
    if (!this.#tables.areMade) return;
    const excess =
      Number(this.#tables.sql.exec('SELECT COUNT(*) AS count FROM edge_call').one().count) - count;
    if (excess <= 0) return;
    this.#tables.sql.exec(
      `DELETE FROM edge_call WHERE n IN (
         SELECT n FROM edge_call WHERE endedAtMs IS NOT NULL ORDER BY n LIMIT ?)`,
      excess,
    );
  }

  deleteEndedBefore(beforeMs: number, limit: number): number {
    if (!this.#tables.areMade) return 0;
    return this.#tables.sql.exec(
      'DELETE FROM edge_call WHERE n IN (SELECT n FROM edge_call WHERE endedAtMs < ? ORDER BY n LIMIT ?)',
      beforeMs,
      limit,
    ).rowsWritten;
  }

  /** Those of which something may be kept that they gave. */
  unexpiredBefore(beforeMs: number, limit: number): EdgeCallRow[] {
    if (!this.#tables.areMade) return [];
    return this.#tables.sql
      .exec('SELECT * FROM edge_call WHERE endedAtMs < ? AND expired = 0 ORDER BY n LIMIT ?', beforeMs, limit)
      .toArray()
      .map((row) => RowSchema.parse(row));
  }

  /** Only how it ended is kept of it. */
  expire(n: number, execution: Execution): void {
    this.dropContent(n, execution);
    this.#tables.sql.exec('UPDATE edge_call SET expired = 1 WHERE n = ?', n);
  }

  contentBytes(): number {
    if (!this.#tables.areMade) return 0;
    return Number(
      this.#tables.sql.exec('SELECT COALESCE(SUM(contentBytes), 0) AS bytes FROM edge_call').one().bytes,
    );
  }

  /** The oldest of which content is kept. */
  oldestWithContent(): (EdgeCallRow & { contentBytes: number }) | undefined {
    if (!this.#tables.areMade) return undefined;
    const found = this.#tables.sql.exec('SELECT * FROM edge_call WHERE contentBytes > 0 ORDER BY n LIMIT 1');
    const [row] = found.toArray();
    return row === undefined ? undefined : RowSchema.extend({ contentBytes: z.number() }).parse(row);
  }

  clear(): void {
    if (this.#tables.areMade) this.#tables.sql.exec('DELETE FROM edge_call');
  }

  #one(column: 'executionId' | 'idempotencyKey', value: string): EdgeCallRow | undefined {
    if (!this.#tables.areMade) return undefined;
    const [row] = this.#tables.sql.exec(`SELECT * FROM edge_call WHERE ${column} = ?`, value).toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }
}
