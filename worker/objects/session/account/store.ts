/** SQL of a session's own account: what it has used since it began, and what of that its tenant has not heard. */
import * as z from 'zod';
import { ensureSchema } from '../../schema.ts';
import { Flag } from '../rows/records.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS account (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  executions INTEGER NOT NULL, cpuMs INTEGER NOT NULL, egressBytes INTEGER NOT NULL, outputBytes INTEGER NOT NULL,
  dueAtMs INTEGER, limited INTEGER NOT NULL, counted INTEGER NOT NULL
);
`;
const NEWER_COLUMNS = [
  ['account', 'termsAtMs', 'INTEGER NOT NULL DEFAULT 0'],
  ['account', 'reportAfterMs', 'INTEGER NOT NULL DEFAULT 30000'],
  ['account', 'revision', 'INTEGER NOT NULL DEFAULT 0'],
] as const;

const RowSchema = z.object({
  executions: z.number(),
  cpuMs: z.number(),
  egressBytes: z.number(),
  outputBytes: z.number(),
  /** When the tenant has to hear of it at the latest; null where it knows all. */
  dueAtMs: z.number().nullable(),
  limited: Flag,
  counted: Flag,
  /** When the tenant said its terms last: they hold on for a while, whatever becomes of this memory. */
  termsAtMs: z.number(),
  /** How late a tenant without limits wants to hear what was used. */
  reportAfterMs: z.number(),
  /** Of the terms. */
  revision: z.number(),
});
export type AccountBook = z.infer<typeof RowSchema>;

export class AccountStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    ensureSchema(storage, { name: 'account', statements: SCHEMA, newerColumns: NEWER_COLUMNS });
  }

  load(): AccountBook | undefined {
    const [row] = this.#sql.exec('SELECT * FROM account').toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }

  save(book: AccountBook): void {
    this.#sql.exec(
      `INSERT OR REPLACE INTO account (id, executions, cpuMs, egressBytes, outputBytes, dueAtMs, limited, counted, termsAtMs,
         reportAfterMs, revision)
       VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      book.executions,
      book.cpuMs,
      book.egressBytes,
      book.outputBytes,
      book.dueAtMs,
      book.limited ? 1 : 0,
      book.counted ? 1 : 0,
      book.termsAtMs,
      book.reportAfterMs,
      book.revision,
    );
  }
}
