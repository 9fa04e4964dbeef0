/** SQL of a tenant's webhooks, and of deliveries that wait to be tried again. */
import * as z from 'zod';
import { SealedCallbackSchema } from '../../../shared/callback.ts';
import { EventSchema, WebhookEventTypeSchema } from '../../../shared/event.ts';
import { WebhookIdSchema } from '../../../shared/ids.ts';
import { ensureSchema, type NewerColumn } from '../schema.ts';
import { Flag, json } from '../session/rows/records.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS tenant (id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS webhook (
  webhookId TEXT PRIMARY KEY, url TEXT NOT NULL, events TEXT, labels TEXT, description TEXT NOT NULL,
  isEnabled INTEGER NOT NULL, secrets TEXT NOT NULL, formerUntilMs INTEGER,
  isFailing INTEGER NOT NULL, failures INTEGER NOT NULL,
  errorAtMs INTEGER, errorMessage TEXT, errorStatus INTEGER, successAtMs INTEGER,
  createdAtMs INTEGER NOT NULL, updatedAtMs INTEGER NOT NULL
) WITHOUT ROWID;
-- Target: the id of a webhook, or of the holder of a callback's secret.
CREATE TABLE IF NOT EXISTS delivery (
  deliveryId INTEGER PRIMARY KEY AUTOINCREMENT, target TEXT NOT NULL, callback TEXT, eventId TEXT NOT NULL,
  event TEXT NOT NULL, attempts INTEGER NOT NULL, nextAtMs INTEGER NOT NULL,
  UNIQUE (target, eventId)
);
CREATE INDEX IF NOT EXISTS delivery_by_time ON delivery (nextAtMs);
CREATE INDEX IF NOT EXISTS delivery_of_callback ON delivery (deliveryId) WHERE callback IS NOT NULL;
`;

const NEWER_COLUMNS: readonly NewerColumn[] = [
  ['webhook', 'nextProbeAtMs', 'INTEGER NOT NULL DEFAULT 0'],
  ['delivery', 'createdAtMs', 'INTEGER'],
];

const WebhookRowSchema = z.object({
  webhookId: WebhookIdSchema,
  url: z.string(),
  events: json(z.array(WebhookEventTypeSchema)).nullable(),
  labels: z.string().nullable(),
  description: z.string(),
  isEnabled: Flag,
  secrets: z.string(),
  formerUntilMs: z.number().nullable(),
  /** A message was given up, and none delivered since. */
  isFailing: Flag,
  /** Attempts that failed one after the other. */
  failures: z.number(),
  errorAtMs: z.number().nullable(),
  errorMessage: z.string().nullable(),
  errorStatus: z.number().nullable(),
  successAtMs: z.number().nullable(),
  /** As long as it is held nothing is tried there before. */
  nextProbeAtMs: z.number(),
  createdAtMs: z.number(),
  updatedAtMs: z.number(),
});
export type WebhookRow = z.infer<typeof WebhookRowSchema>;

const DeliveryRowSchema = z.object({
  deliveryId: z.number(),
  target: z.string(),
  callback: json(SealedCallbackSchema).nullable(),
  event: json(EventSchema),
  attempts: z.number(),
  nextAtMs: z.number(),
  /** Null in rows of a former version. */
  createdAtMs: z.number().nullable(),
});
export type DeliveryRow = z.infer<typeof DeliveryRowSchema>;

export class WebhookStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    ensureSchema(storage, { name: 'webhooks', statements: SCHEMA, newerColumns: NEWER_COLUMNS });
  }

  /** Whose they are; null before anybody said so. */
  tenant(): string | null {
    const [row] = this.#sql.exec('SELECT name FROM tenant').toArray();
    return row === undefined ? null : z.object({ name: z.string() }).parse(row).name;
  }

  setTenant(name: string): void {
    this.#sql.exec('INSERT INTO tenant (id, name) VALUES (1, ?) ON CONFLICT DO NOTHING', name);
  }

  insert(row: WebhookRow): void {
    const columns = Object.keys(row);
    this.#sql.exec(
      `INSERT INTO webhook (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')})`,
      ...Object.values(row).map(stored),
    );
  }

  update(webhookId: string, patch: Partial<WebhookRow>): void {
    const columns = Object.keys(patch);
    this.#sql.exec(
      `UPDATE webhook SET ${columns.map((column) => `${column} = ?`).join(', ')} WHERE webhookId = ?`,
      ...Object.values(patch).map(stored),
      webhookId,
    );
  }

  find(webhookId: string): WebhookRow | undefined {
    const [row] = this.#sql.exec('SELECT * FROM webhook WHERE webhookId = ?', webhookId).toArray();
    return row === undefined ? undefined : WebhookRowSchema.parse(row);
  }

  /** Oldest first. */
  all(): WebhookRow[] {
    return this.#sql
      .exec('SELECT * FROM webhook ORDER BY createdAtMs, webhookId')
      .toArray()
      .map((row) => WebhookRowSchema.parse(row));
  }

  delete(webhookId: string): void {
    this.#sql.exec('DELETE FROM webhook WHERE webhookId = ?', webhookId);
    this.deleteDeliveriesTo(webhookId);
  }

  deleteDeliveriesTo(target: string): void {
    this.#sql.exec('DELETE FROM delivery WHERE target = ?', target);
  }

  /** One event waits once for each target, however often it came here. */
  insertDelivery(row: Omit<DeliveryRow, 'deliveryId'>): void {
    this.#sql.exec(
      `INSERT INTO delivery (target, callback, eventId, event, attempts, nextAtMs, createdAtMs)
       VALUES (?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (target, eventId) DO NOTHING`,
      row.target,
      row.callback === null ? null : JSON.stringify(row.callback),
      row.event.id,
      JSON.stringify(row.event),
      row.attempts,
      row.nextAtMs,
      row.createdAtMs,
    );
  }

  delivery(deliveryId: number): DeliveryRow | undefined {
    const [row] = this.#sql.exec('SELECT * FROM delivery WHERE deliveryId = ?', deliveryId).toArray();
    return row === undefined ? undefined : DeliveryRowSchema.parse(row);
  }

  deleteDelivery(deliveryId: number): void {
    this.#sql.exec('DELETE FROM delivery WHERE deliveryId = ?', deliveryId);
  }

  setAttempts(deliveryId: number, attempts: number, nextAtMs: number): void {
    this.#sql.exec(
      'UPDATE delivery SET attempts = ?, nextAtMs = ? WHERE deliveryId = ?',
      attempts,
      nextAtMs,
      deliveryId,
    );
  }

  setNext(deliveryIds: readonly number[], nextAtMs: number): void {
    for (const deliveryId of deliveryIds)
      this.#sql.exec('UPDATE delivery SET nextAtMs = ? WHERE deliveryId = ?', nextAtMs, deliveryId);
  }

  /** All that wait for the target, but for those that are due sooner. */
  setNextOf(target: string, nextAtMs: number): void {
    this.#sql.exec('UPDATE delivery SET nextAtMs = ?1 WHERE target = ?2 AND nextAtMs > ?1', nextAtMs, target);
  }

  /** All that is due for the target. */
  postpone(target: string, { nowMs, untilMs }: { nowMs: number; untilMs: number }): void {
    this.#sql.exec(
      'UPDATE delivery SET nextAtMs = ? WHERE target = ? AND nextAtMs <= ?',
      untilMs,
      target,
      nowMs,
    );
  }

  /** Oldest first. */
  due(nowMs: number, limit: number): DeliveryRow[] {
    return this.#sql
      .exec('SELECT * FROM delivery WHERE nextAtMs <= ? ORDER BY nextAtMs, deliveryId LIMIT ?', nowMs, limit)
      .toArray()
      .map((row) => DeliveryRowSchema.parse(row));
  }

  nextAtMs(): number | null {
    const row = this.#sql.exec('SELECT MIN(nextAtMs) AS atMs FROM delivery').one();
    return row.atMs === null ? null : Number(row.atMs);
  }

  waiting(target: string): number {
    return Number(
      this.#sql.exec('SELECT COUNT(*) AS count FROM delivery WHERE target = ?', target).one().count,
    );
  }

  waitingCallbacks(): number {
    return Number(
      this.#sql.exec('SELECT COUNT(*) AS count FROM delivery WHERE callback IS NOT NULL').one().count,
    );
  }

  waitingInAll(): number {
    return Number(this.#sql.exec('SELECT COUNT(*) AS count FROM delivery').one().count);
  }
}

function stored(value: string | number | boolean | null | readonly string[]): string | number | null {
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (typeof value === 'string' || typeof value === 'number' || value === null) return value;
  return JSON.stringify(value);
}
