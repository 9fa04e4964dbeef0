/** SQL of the tenant object: the index of its sessions, and the keys of creates. */
import * as z from 'zod';
import type { SessionState } from '../../../shared/lifecycle.ts';
import { type LabelTerm, SessionListSchema } from '../../../shared/session.ts';
import { ensureSchema } from '../schema.ts';
import type { ListPosition } from './list-cursor.ts';
import type { SessionListEntry } from './port.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS session (
  session_id TEXT PRIMARY KEY,
  subject TEXT NOT NULL,
  created_at TEXT NOT NULL,
  entry TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS session_by_age ON session (subject, created_at, session_id);
-- Labels of sessions, with the place of their session in the list.
CREATE TABLE IF NOT EXISTS session_label (
  subject TEXT NOT NULL, label TEXT NOT NULL, value TEXT NOT NULL, created_at TEXT NOT NULL, session_id TEXT NOT NULL,
  PRIMARY KEY (subject, label, created_at, session_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS session_label_by_session ON session_label (session_id);
CREATE TABLE IF NOT EXISTS create_key (
  key TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  session_id TEXT NOT NULL,
  created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS create_key_by_age ON create_key (created_at);
CREATE TABLE IF NOT EXISTS standing (id INTEGER PRIMARY KEY CHECK (id = 1), disabled INTEGER NOT NULL, revision INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS revoked_token (token_id TEXT PRIMARY KEY, expires_at INTEGER NOT NULL) WITHOUT ROWID;
`;

const EntrySchema = SessionListSchema.shape.sessions.element;
const EntryRowSchema = z.object({
  entry: z.string().transform((text) => EntrySchema.parse(JSON.parse(text))),
});

const RevokedRowSchema = z.object({ token_id: z.string() });
const ReservationSchema = z.object({
  fingerprint: z.string(),
  id: z.string(),
  atMs: z.number(),
  isMade: z.number().transform((made) => made === 1),
});
export type Reservation = z.infer<typeof ReservationSchema>;

export interface SessionSearch {
  subject: string;
  labels: readonly LabelTerm[];
  state: SessionState | undefined;
}

export class TenantStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    const newerColumns = [['create_key', 'made', 'INTEGER']] as const;
    ensureSchema(storage, { name: 'tenant', statements: SCHEMA, newerColumns });
  }

  putSession(subject: string, entry: SessionListEntry): void {
    this.#sql.exec(
      `INSERT INTO session (session_id, subject, created_at, entry) VALUES (?, ?, ?, ?)
       ON CONFLICT (session_id) DO UPDATE SET entry = excluded.entry`,
      entry.session_id,
      subject,
      entry.created_at,
      JSON.stringify(entry),
    );
    this.#putLabels(subject, entry);
  }

  /** Not one that is gone meanwhile. */
  updateSession(subject: string, entry: SessionListEntry): void {
    const { rowsWritten } = this.#sql.exec(
      'UPDATE session SET entry = ? WHERE session_id = ? AND subject = ?',
      JSON.stringify(entry),
      entry.session_id,
      subject,
    );
    if (rowsWritten > 0) this.#putLabels(subject, entry);
  }

  #putLabels(subject: string, { session_id, created_at, labels }: SessionListEntry): void {
    this.#sql.exec('DELETE FROM session_label WHERE session_id = ?', session_id);
    for (const [label, value] of Object.entries(labels)) {
      this.#sql.exec(
        'INSERT INTO session_label (subject, label, value, created_at, session_id) VALUES (?, ?, ?, ?, ?)',
        subject,
        label,
        value,
        created_at,
        session_id,
      );
    }
  }

  deleteSession(sessionId: string): void {
    this.#sql.exec('DELETE FROM session WHERE session_id = ?', sessionId);
    this.#sql.exec('DELETE FROM session_label WHERE session_id = ?', sessionId);
  }

  /** Newest first, those after `position` that have all the labels. */
  sessions(search: SessionSearch, position: ListPosition | undefined, limit: number): SessionListEntry[] {
    const { subject, labels, state } = search;
    const conditions = ['session.subject = ?'];
    const bindings: (string | number)[] = [subject];
    if (position !== undefined) {
      conditions.push('(session.created_at, session.session_id) < (?, ?)');
      bindings.push(position.createdAt, position.id);
    }
    for (const { key, value } of labels) {
      const ofValue = value === undefined ? '' : ' AND value = ?';
      conditions.push(
        `EXISTS (SELECT 1 FROM session_label AS found WHERE found.subject = session.subject AND found.label = ?
           AND found.created_at = session.created_at AND found.session_id = session.session_id${ofValue})`,
      );
      bindings.push(key, ...(value === undefined ? [] : [value]));
    }
    if (state !== undefined) {
      conditions.push("json_extract(session.entry, '$.state') = ?");
      bindings.push(state);
    }
    return this.#sql
      .exec(
        `SELECT entry FROM session WHERE ${conditions.join(' AND ')}
         ORDER BY session.created_at DESC, session.session_id DESC LIMIT ?`,
        ...bindings,
        limit,
      )
      .toArray()
      .map((row) => EntryRowSchema.parse(row).entry);
  }

  standing(): { disabled: boolean; revision: number } {
    const [row] = this.#sql.exec('SELECT disabled, revision FROM standing').toArray();
    return { disabled: row?.disabled === 1, revision: Number(row?.revision ?? 0) };
  }

  setDisabled(disabled: boolean): void {
    this.#sql.exec(
      `INSERT INTO standing (id, disabled, revision) VALUES (1, ?1, 1)
       ON CONFLICT (id) DO UPDATE SET disabled = ?1, revision = revision + 1`,
      disabled ? 1 : 0,
    );
  }

  revokeToken(tokenId: string, expiresAtMs: number): void {
    this.#sql.exec(
      'INSERT INTO revoked_token (token_id, expires_at) VALUES (?, ?) ON CONFLICT DO NOTHING',
      tokenId,
      expiresAtMs,
    );
    this.changed();
  }

  /** What is revoked has changed: whoever knows the standing has to hear of it. */
  changed(): void {
    this.setDisabled(this.standing().disabled);
  }

  /** Those that may still live. */
  revokedTokens(nowMs: number): string[] {
    this.#sql.exec('DELETE FROM revoked_token WHERE expires_at < ?', nowMs);
    return this.#sql
      .exec('SELECT token_id FROM revoked_token')
      .toArray()
      .map((row) => RevokedRowSchema.parse(row).token_id);
  }

  reservation(key: string): Reservation | undefined {
    const [row] = this.#sql
      .exec(
        'SELECT fingerprint, session_id AS id, created_at AS atMs, made IS 1 AS isMade FROM create_key WHERE key = ?',
        key,
      )
      .toArray();
    return row === undefined ? undefined : ReservationSchema.parse(row);
  }

  reserve(key: string, reservation: Pick<Reservation, 'fingerprint' | 'id'>, nowMs: number): void {
    this.#sql.exec(
      'INSERT INTO create_key (key, fingerprint, session_id, created_at) VALUES (?, ?, ?, ?)',
      key,
      reservation.fingerprint,
      reservation.id,
      nowMs,
    );
  }

  settleReservation({ key, id, isMade }: { key: string; id: string; isMade: boolean }): void {
    const settle = isMade ? 'UPDATE create_key SET made = 1' : 'DELETE FROM create_key';
    this.#sql.exec(`${settle} WHERE key = ? AND session_id = ?`, key, id);
  }

  forgetReservationsBefore(createdAtMs: number): void {
    this.#sql.exec('DELETE FROM create_key WHERE created_at < ?', createdAtMs);
  }
}
