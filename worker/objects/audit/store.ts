/** SQL of the audit object. */
import * as z from 'zod';
import { type AuditEntry, AuditEntrySchema } from '../../../shared/audit.ts';
import type { Act } from './port.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS act (
  n INTEGER PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, request_id TEXT NOT NULL, operation TEXT NOT NULL,
  target TEXT NOT NULL, body TEXT, status INTEGER, code TEXT
);
`;

const RowSchema = z
  .object({ target: z.string() })
  .loose()
  .transform((row) => AuditEntrySchema.parse({ ...row, target: JSON.parse(row.target) }));

/** About a hundred megabytes at the most. */
const MAX_ACTS = 50_000;

export class AuditStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  add(act: Act, at: string): number {
    const n = Number(this.#sql.exec('SELECT COALESCE(MAX(n), 0) + 1 AS n FROM act').one().n);
    this.#sql.exec(
      'INSERT INTO act (n, at, actor, request_id, operation, target, body) VALUES (?, ?, ?, ?, ?, ?, ?)',
      n,
      at,
      act.actor,
      act.request_id,
      act.operation,
      JSON.stringify(act.target),
      act.body,
    );
    this.#sql.exec('DELETE FROM act WHERE n <= ?', n - MAX_ACTS);
    return n;
  }

  setEnd(n: number, status: number, code: string | null): void {
    this.#sql.exec('UPDATE act SET status = ?, code = ? WHERE n = ? AND status IS NULL', status, code, n);
  }

  before(n: number, limit: number): AuditEntry[] {
    return this.#sql
      .exec('SELECT * FROM act WHERE n < ? ORDER BY n DESC LIMIT ?', n, limit)
      .toArray()
      .map((row) => RowSchema.parse(row));
  }
}
