/** SQL of the news for the sessions of a tenant: how far the walk over them is. */
import * as z from 'zod';
import { TenantSchema } from '../../../../shared/ids.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS news_walk (
  id INTEGER PRIMARY KEY CHECK (id = 1), tenant TEXT NOT NULL, due_at INTEGER, began_at INTEGER NOT NULL, after_id TEXT,
  is_again INTEGER NOT NULL
);
`;

const WalkSchema = z.object({
  tenant: TenantSchema,
  /** When it goes on; null where there is nothing to tell. */
  due_at: z.number().nullable(),
  /** When the last one began. */
  began_at: z.number(),
  /** The last session that was told; null before the first. */
  after_id: z.string().nullable(),
  /** Whether there was news meanwhile: who was told already is told again. */
  is_again: z.number().transform((flag) => flag === 1),
});
export type Walk = z.infer<typeof WalkSchema>;

export class NewsStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  load(): Walk | undefined {
    const [row] = this.#sql.exec('SELECT * FROM news_walk').toArray();
    return row === undefined ? undefined : WalkSchema.parse(row);
  }

  save({ tenant, due_at, began_at, after_id, is_again }: Walk): void {
    this.#sql.exec(
      `INSERT OR REPLACE INTO news_walk (id, tenant, due_at, began_at, after_id, is_again) VALUES (1, ?, ?, ?, ?, ?)`,
      tenant,
      due_at,
      began_at,
      after_id,
      is_again ? 1 : 0,
    );
  }
}
