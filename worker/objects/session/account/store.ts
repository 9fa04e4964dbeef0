/** SQL of a session's own account: what it has used since it began, and what of that its tenant has not heard. */
import * as z from 'zod';
import { Flag } from '../records.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS account (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  executions INTEGER NOT NULL, cpuMs INTEGER NOT NULL, egressBytes INTEGER NOT NULL, outputBytes INTEGER NOT NULL,
  dueAtMs INTEGER, limited INTEGER NOT NULL, counted INTEGER NOT NULL
);
`;

const RowSchema = z.object({
  executions: z.number(),
  cpuMs: z.number(),
  egressBytes: z.number(),
  outputBytes: z.number(),
  /** When the tenant has to hear of it at the latest; null where it knows all. */
  dueAtMs: z.number().nullable(),
  limited: Flag,
  counted: Flag,
});
export type AccountBook = z.infer<typeof RowSchema>;

export class AccountStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  load(): AccountBook | undefined {
    const [row] = this.#sql.exec('SELECT * FROM account').toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }

  save(book: AccountBook): void {
    this.#sql.exec(
      `INSERT OR REPLACE INTO account (id, executions, cpuMs, egressBytes, outputBytes, dueAtMs, limited, counted)
       VALUES (1, ?, ?, ?, ?, ?, ?, ?)`,
      book.executions,
      book.cpuMs,
      book.egressBytes,
      book.outputBytes,
      book.dueAtMs,
      book.limited ? 1 : 0,
      book.counted ? 1 : 0,
    );
  }
}
