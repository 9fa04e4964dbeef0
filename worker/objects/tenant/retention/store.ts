/** SQL of how long the tenant wants things kept. */
import * as z from 'zod';
import { KEPT_FOREVER, type Retention, RetentionSchema } from '../../../../shared/retention.ts';
import { json } from '../../session/rows/records.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS retention (id INTEGER PRIMARY KEY CHECK (id = 1), days TEXT NOT NULL);
`;
const RowSchema = z.object({ days: json(RetentionSchema) });

export class RetentionStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  load(): Retention {
    const [row] = this.#sql.exec('SELECT days FROM retention').toArray();
    return row === undefined ? KEPT_FOREVER : RowSchema.parse(row).days;
  }

  save(retention: Retention): void {
    this.#sql.exec('INSERT OR REPLACE INTO retention (id, days) VALUES (1, ?)', JSON.stringify(retention));
  }
}
