/** SQL of a session's events: its log, which of them have to be sent, and where the ends of detached calls are told. */
import * as z from 'zod';
import { type SealedCallback, SealedCallbackSchema } from '../../../../shared/callback.ts';
import { type SessionEvent, SessionEventSchema } from '../../../../shared/event.ts';
import { ensureSchema } from '../../schema.ts';
import { json } from '../rows/records.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS session_event (
  n INTEGER PRIMARY KEY, eventId TEXT NOT NULL, event TEXT NOT NULL, atMs INTEGER NOT NULL,
  isPending INTEGER NOT NULL, callback TEXT
);
CREATE INDEX IF NOT EXISTS session_event_pending ON session_event (n) WHERE isPending = 1;
CREATE TABLE IF NOT EXISTS event_terms (id INTEGER PRIMARY KEY CHECK (id = 1), webhooksSinceMs INTEGER);
CREATE TABLE IF NOT EXISTS execution_callback (executionId TEXT PRIMARY KEY, callback TEXT NOT NULL) WITHOUT ROWID;
`;

const EventRowSchema = z.object({ event: json(SessionEventSchema) });
const PendingRowSchema = EventRowSchema.extend({ callback: json(SealedCallbackSchema).nullable() });
const TermsRowSchema = z.object({ webhooksSinceMs: z.number().nullable() });
const CallbackRowSchema = z.object({ executionId: z.string(), callback: json(SealedCallbackSchema) });
const ExtentSchema = z.object({ first: z.number().nullable(), last: z.number().nullable() });

export interface NewEvent {
  event: SessionEvent;
  atMs: number;
  isPending: boolean;
  callback: SealedCallback | null;
}

export class SessionEventStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    ensureSchema(storage, { name: 'events', statements: SCHEMA });
  }

  insert({ event, atMs, isPending, callback }: NewEvent): void {
    this.#sql.exec(
      'INSERT INTO session_event (n, eventId, event, atMs, isPending, callback) VALUES (?, ?, ?, ?, ?, ?)',
      event.n,
      event.id,
      JSON.stringify(event),
      atMs,
      isPending ? 1 : 0,
      callback === null ? null : JSON.stringify(callback),
    );
  }

  /** Numbers of the oldest and the newest that are kept. */
  extent(): { first: number | null; last: number | null } {
    const row = this.#sql.exec('SELECT MIN(n) AS first, MAX(n) AS last FROM session_event').one();
    return ExtentSchema.parse(row);
  }

  has(eventId: string): boolean {
    return this.#sql.exec('SELECT 1 FROM session_event WHERE eventId = ?', eventId).toArray().length > 0;
  }

  after(n: number, limit: number): SessionEvent[] {
    return this.#sql
      .exec('SELECT event FROM session_event WHERE n > ? ORDER BY n LIMIT ?', n, limit)
      .toArray()
      .map((row) => EventRowSchema.parse(row).event);
  }

  pendingAfter(n: number, limit: number): z.infer<typeof PendingRowSchema>[] {
    return this.#sql
      .exec(
        'SELECT event, callback FROM session_event WHERE isPending = 1 AND n > ? ORDER BY n LIMIT ?',
        n,
        limit,
      )
      .toArray()
      .map((row) => PendingRowSchema.parse(row));
  }

  pendingCount(): number {
    return Number(
      this.#sql.exec('SELECT COUNT(*) AS count FROM session_event WHERE isPending = 1').one().count,
    );
  }

  /** Those since then that were not to be sent are. */
  makePending(sinceMs: number): void {
    this.#sql.exec('UPDATE session_event SET isPending = 1 WHERE isPending = 0 AND atMs >= ?', sinceMs);
  }

  taken(eventIds: readonly string[]): void {
    for (const eventId of eventIds) {
      this.#sql.exec(
        'UPDATE session_event SET isPending = 0, callback = NULL WHERE isPending = 1 AND eventId = ?',
        eventId,
      );
    }
  }

  /** Those up to `n` that need not be sent. */
  trim(n: number): void {
    this.#sql.exec('DELETE FROM session_event WHERE n <= ? AND isPending = 0', n);
  }

  /** Those up to `n`, sent or not; gives how many were not. */
  drop(n: number): number {
    const { count } = this.#sql
      .exec('SELECT COUNT(*) AS count FROM session_event WHERE isPending = 1 AND n <= ?', n)
      .one();
    this.#sql.exec('DELETE FROM session_event WHERE n <= ?', n);
    return Number(count);
  }

  /** Those before then need not be sent any more; gives how many they are. They stay in the log, whose numbers go on. */
  expire(beforeMs: number): number {
    return this.#sql
      .exec(
        'UPDATE session_event SET isPending = 0, callback = NULL WHERE isPending = 1 AND atMs < ? RETURNING n',
        beforeMs,
      )
      .toArray().length;
  }

  webhooksSinceMs(): number | null {
    const [row] = this.#sql.exec('SELECT webhooksSinceMs FROM event_terms').toArray();
    return row === undefined ? null : TermsRowSchema.parse(row).webhooksSinceMs;
  }

  setWebhooksSince(sinceMs: number | null): void {
    this.#sql.exec('INSERT OR REPLACE INTO event_terms (id, webhooksSinceMs) VALUES (1, ?)', sinceMs);
  }

  putCallback(executionId: string, callback: SealedCallback): void {
    this.#sql.exec(
      'INSERT OR REPLACE INTO execution_callback (executionId, callback) VALUES (?, ?)',
      executionId,
      JSON.stringify(callback),
    );
  }

  callbacks(): z.infer<typeof CallbackRowSchema>[] {
    return this.#sql
      .exec('SELECT executionId, callback FROM execution_callback')
      .toArray()
      .map((row) => CallbackRowSchema.parse(row));
  }

  deleteCallback(executionId: string): void {
    this.#sql.exec('DELETE FROM execution_callback WHERE executionId = ?', executionId);
  }
}
