/** SQL of one tool source: whose it is, what was seen last, and the pushes that were taken. */
import * as z from 'zod';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS state (
  n INTEGER PRIMARY KEY CHECK (n = 1),
  tenant TEXT NOT NULL,
  source TEXT NOT NULL,
  seen TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS push (
  id TEXT PRIMARY KEY,
  sentAtMs INTEGER NOT NULL
) WITHOUT ROWID;
`;

const SeenSchema = z.object({
  /** Of the definition that it was seen by. */
  revision: z.number(),
  etag: z.string().nullable(),
  digest: z.string().nullable(),
  failures: z.number(),
  pushedAtMs: z.number(),
});
export type Seen = z.infer<typeof SeenSchema>;

const RowSchema = z.object({
  tenant: z.string(),
  source: z.string(),
  seen: z.string().transform((text) => SeenSchema.parse(JSON.parse(text))),
});

const NOTHING: Seen = { revision: 0, etag: null, digest: null, failures: 0, pushedAtMs: 0 };

export class SourceObjectStore {
  readonly #storage: DurableObjectStorage;
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#storage = storage;
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  get owner(): { tenant: string; source: string } | undefined {
    const row = this.#row();
    return row === undefined ? undefined : { tenant: row.tenant, source: row.source };
  }

  /** Of this revision; what was seen by a former one says nothing of it. */
  seen(revision: number): Seen {
    const seen = this.#row()?.seen ?? NOTHING;
    return seen.revision === revision ? seen : { ...NOTHING, revision };
  }

  own({ tenant, source }: { tenant: string; source: string }): void {
    this.#sql.exec(
      'INSERT OR IGNORE INTO state (n, tenant, source, seen) VALUES (1, ?, ?, ?)',
      tenant,
      source,
      JSON.stringify(NOTHING),
    );
  }

  note(seen: Seen): void {
    this.#sql.exec('UPDATE state SET seen = ?', JSON.stringify(seen));
  }

  /** False where it was taken before. */
  takePush(id: string, sentAtMs: number, forgetBeforeMs: number): boolean {
    this.#sql.exec('DELETE FROM push WHERE sentAtMs < ?', forgetBeforeMs);
    return (
      this.#sql.exec('INSERT OR IGNORE INTO push (id, sentAtMs) VALUES (?, ?)', id, sentAtMs).rowsWritten > 0
    );
  }

  async clear(): Promise<void> {
    await this.#storage.deleteAlarm();
    this.#sql.exec('DELETE FROM state');
    this.#sql.exec('DELETE FROM push');
  }

  #row(): z.infer<typeof RowSchema> | undefined {
    const [row] = this.#sql.exec('SELECT * FROM state').toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }
}
