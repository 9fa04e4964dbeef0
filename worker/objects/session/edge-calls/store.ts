/** SQL of the calls of a session that ran at the edge: enough to answer a repeated one, and to show it. */
import * as z from 'zod';
import { type Execution, ExecutionSchema } from '../../../../shared/execution.ts';
import { json } from '../records.ts';

const RowSchema = z.object({
  fingerprint: z.string().nullable(),
  deadlineAtMs: z.number(),
  execution: json(ExecutionSchema),
});
export type EdgeCallRow = z.infer<typeof RowSchema>;

export class EdgeCallStore {
  readonly #sql: SqlStorage;

  /** The table is one of the session's own. */
  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
  }

  insert(row: EdgeCallRow & { idempotencyKey: string | null }): void {
    this.#sql.exec(
      'INSERT INTO edge_call (executionId, idempotencyKey, fingerprint, deadlineAtMs, execution) VALUES (?, ?, ?, ?, ?)',
      row.execution.execution_id,
      row.idempotencyKey,
      row.fingerprint,
      row.deadlineAtMs,
      JSON.stringify(row.execution),
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
