/** SQL of a keyed call: whose it is. The call itself is a row as a session has them. */
import * as z from 'zod';
import { ExecutionIdSchema, SessionIdSchema, TenantSchema } from '../../../shared/ids.ts';
import { ensureSchema } from '../schema.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS keyed_call (
  id INTEGER PRIMARY KEY CHECK (id = 1), tenant TEXT NOT NULL, sessionId TEXT NOT NULL, executionId TEXT NOT NULL,
  begunAtMs INTEGER NOT NULL
);
`;

const KeyedCallSchema = z.object({
  tenant: TenantSchema,
  sessionId: SessionIdSchema,
  executionId: ExecutionIdSchema,
  begunAtMs: z.number(),
});
export type KeyedCall = z.infer<typeof KeyedCallSchema>;

export class KeyedCallStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    ensureSchema(storage, { name: 'keyed-call', statements: SCHEMA });
  }

  load(): KeyedCall | undefined {
    const [row] = this.#sql.exec('SELECT * FROM keyed_call').toArray();
    return row === undefined ? undefined : KeyedCallSchema.parse(row);
  }

  insert({ tenant, sessionId, executionId, begunAtMs }: KeyedCall): void {
    this.#sql.exec(
      'INSERT INTO keyed_call (id, tenant, sessionId, executionId, begunAtMs) VALUES (1, ?, ?, ?, ?)',
      tenant,
      sessionId,
      executionId,
      begunAtMs,
    );
  }
}
