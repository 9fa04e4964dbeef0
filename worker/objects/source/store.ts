/** SQL of one tool source: whose it is, what was seen last, and the pushes that were taken. */
import * as z from 'zod';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS state (
  n INTEGER PRIMARY KEY CHECK (n = 1),
  tenant TEXT NOT NULL,
  source TEXT NOT NULL,
  seen TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS sandbox (
  n INTEGER PRIMARY KEY CHECK (n = 1),
  id TEXT NOT NULL,
  epoch INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS archive_part (
  upload TEXT NOT NULL,
  part INTEGER NOT NULL,
  isWhole INTEGER NOT NULL DEFAULT 0,
  bytes BLOB NOT NULL,
  PRIMARY KEY (upload, part)
) WITHOUT ROWID;
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

const SessionRowSchema = z.object({ id: z.string(), epoch: z.number() });

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

  get session(): { id: string; epoch: number } | null {
    const [row] = this.#sql.exec('SELECT id, epoch FROM sandbox').toArray();
    return row === undefined ? null : SessionRowSchema.parse(row);
  }

  set session(session: { id: string; epoch: number } | null) {
    this.#sql.exec('DELETE FROM sandbox');
    if (session === null) return;
    this.#sql.exec('INSERT INTO sandbox (n, id, epoch) VALUES (1, ?, ?)', session.id, session.epoch);
  }

  addArchivePart(upload: string, part: number, bytes: Uint8Array<ArrayBuffer>): void {
    this.#sql.exec('INSERT INTO archive_part (upload, part, bytes) VALUES (?, ?, ?)', upload, part, bytes);
  }

  /** In the place of the one before. False where parts are gone: another upload was kept meanwhile. */
  keepArchive(upload: string, parts: number): boolean {
    return this.#storage.transactionSync(() => {
      const { count } = this.#sql
        .exec('SELECT COUNT(*) AS count FROM archive_part WHERE upload = ?', upload)
        .one();
      if (count !== parts) return false;
      this.#sql.exec('DELETE FROM archive_part WHERE upload <> ?', upload);
      this.#sql.exec('UPDATE archive_part SET isWhole = 1');
      return true;
    });
  }

  dropArchive(upload: string): void {
    this.#sql.exec('DELETE FROM archive_part WHERE upload = ?', upload);
  }

  /** Of the archive that is whole. */
  archivePart(part: number): Uint8Array | undefined {
    const [row] = this.#sql
      .exec('SELECT bytes FROM archive_part WHERE isWhole = 1 AND part = ?', part)
      .toArray();
    return row?.bytes instanceof ArrayBuffer ? new Uint8Array(row.bytes) : undefined;
  }

  async clear(): Promise<void> {
    await this.#storage.deleteAlarm();
    this.#sql.exec('DELETE FROM state');
    this.#sql.exec('DELETE FROM push');
    this.#sql.exec('DELETE FROM sandbox');
    this.#sql.exec('DELETE FROM archive_part');
  }

  #row(): z.infer<typeof RowSchema> | undefined {
    const [row] = this.#sql.exec('SELECT * FROM state').toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }
}
