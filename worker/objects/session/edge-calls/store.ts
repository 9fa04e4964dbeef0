/** SQL of the calls of a session that ran at the edge: enough to answer a repeated one, and to show it. */
import * as z from 'zod';
import { type Execution, ExecutionSchema } from '../../../../shared/execution.ts';
import { ensureColumn } from '../../columns.ts';
import { MadeCallSchema } from '../edge-receipts/made.ts';
import { json } from '../records.ts';

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
export type EdgeCallRow = z.infer<typeof RowSchema>;

export class EdgeCallStore {
  readonly #sql: SqlStorage;

  /** The table is one of the session's own. */
  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    ensureColumn(this.#sql, 'edge_call', { name: 'afterN', type: 'INTEGER NOT NULL DEFAULT 0' });
    ensureColumn(this.#sql, 'edge_call', { name: 'made', type: 'TEXT' });
  }

  insert(row: Omit<EdgeCallRow, 'n'> & { idempotencyKey: string | null }): void {
    this.#sql.exec(
      `INSERT INTO edge_call (executionId, afterN, idempotencyKey, fingerprint, deadlineAtMs, execution, made)
       VALUES (?, ?, ?, ?, ?, ?, ?)`,
      row.execution.execution_id,
      row.afterN,
      row.idempotencyKey,
      row.fingerprint,
      row.deadlineAtMs,
      JSON.stringify(row.execution),
      JSON.stringify(row.made),
    );
  }

  update(execution: Execution): void {
    const { execution_id } = execution;
    this.#sql.exec(
      'UPDATE edge_call SET execution = ? WHERE executionId = ?',
      JSON.stringify(execution),
      execution_id,
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
    const found = this.#sql.exec(
      'SELECT * FROM edge_call WHERE afterN < ? OR (afterN = ? AND n < ?) ORDER BY afterN DESC, n DESC LIMIT ?',
      afterN,
      afterN,
      n,
      limit,
    );
    return found.toArray().map((row) => RowSchema.parse(row));
  }

  /** Lets the oldest go. */
  keep(count: number): void {
    this.#sql.exec(
      'DELETE FROM edge_call WHERE n NOT IN (SELECT n FROM edge_call ORDER BY n DESC LIMIT ?)',
      count,
    );
  }

  #one(column: 'executionId' | 'idempotencyKey', value: string): EdgeCallRow | undefined {
    const [row] = this.#sql.exec(`SELECT * FROM edge_call WHERE ${column} = ?`, value).toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }
}
