/** SQL of what has to be told of the end of a run. */
import * as z from 'zod';
import { type Event, EventSchema } from '../../../shared/event.ts';
import { ensureSchema } from '../schema.ts';

const SCHEMA =
  'CREATE TABLE IF NOT EXISTS outgoing (event_id TEXT PRIMARY KEY, event TEXT NOT NULL) WITHOUT ROWID';

const RowSchema = z.object({
  event: z.string().transform((text) => EventSchema.parse(JSON.parse(text))),
});

export class OutgoingStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    ensureSchema(storage, { name: 'outgoing', statements: SCHEMA });
  }

  put(event: Event): void {
    this.#sql.exec('INSERT INTO outgoing (event_id, event) VALUES (?, ?)', event.id, JSON.stringify(event));
  }

  first(): Event | undefined {
    const [row] = this.#sql.exec('SELECT event FROM outgoing').toArray();
    return row === undefined ? undefined : RowSchema.parse(row).event;
  }

  delete(eventId: string): void {
    this.#sql.exec('DELETE FROM outgoing WHERE event_id = ?', eventId);
  }
}
