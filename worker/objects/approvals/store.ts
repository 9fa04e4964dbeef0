/** SQL of the calls of a tenant that wait for an approval, or did. */
import * as z from 'zod';
import { ApprovalStatusSchema } from '../../../shared/approval.ts';
import { SealedCallbackSchema } from '../../../shared/callback.ts';
import { ToolPolicySchema } from '../../../shared/tool-policy.ts';
import { ensureSchema, type NewerColumn } from '../schema.ts';
import type { WaitingCall } from './port.ts';

const MAX_LISTED_CHARACTERS = 2 * 1024 * 1024;

const SCHEMA = `
CREATE TABLE IF NOT EXISTS approval (
  executionId TEXT PRIMARY KEY,
  status TEXT NOT NULL,
  call TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  isClaimed INTEGER NOT NULL DEFAULT 0,
  idempotencyKey TEXT,
  idempotencyFingerprint TEXT,
  requestedAtMs INTEGER NOT NULL,
  expiresAtMs INTEGER NOT NULL,
  decidedAtMs INTEGER,
  decidedBy TEXT,
  reason TEXT,
  refusal TEXT,
  isTold INTEGER NOT NULL DEFAULT 0,
  notedStatus TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS approval_by_status ON approval (status, expiresAtMs);
CREATE INDEX IF NOT EXISTS approval_by_fingerprint ON approval (fingerprint);
CREATE UNIQUE INDEX IF NOT EXISTS approval_by_key ON approval (idempotencyKey);
CREATE INDEX IF NOT EXISTS approval_by_session ON approval (json_extract(call, '$.sessionId'), requestedAtMs);
`;

const NEWER_COLUMNS: readonly NewerColumn[] = [
  ['approval', 'isTold', 'INTEGER NOT NULL DEFAULT 0'],
  // Of those of a former version nothing else is known: what was approved is in its session, or never came there.
  ['approval', 'isMade', 'INTEGER NOT NULL DEFAULT 1'],
  // What a former version has in the table is no news.
  ['approval', 'notedStatus', 'TEXT', 'status'],
  ['approval', 'callback', 'TEXT'],
  // Nobody waits for the ends of those of a former version.
  ['approval', 'owesEnd', 'INTEGER NOT NULL DEFAULT 0'],
];

const CallSchema: z.ZodType<WaitingCall> = z.object({
  caller: z.object({ tenant: z.string(), subject: z.string() }),
  scopes: z.array(z.string()),
  toolPolicy: ToolPolicySchema.nullable().default(null),
  tokenId: z.string().default(''),
  issuedAtMs: z.number().default(0),
  apiKeyId: z.string().nullable().default(null),
  sessionId: z.string(),
  tool: z.object({ name: z.string(), version: z.string(), digest: z.string() }),
  arguments: z.record(z.string(), z.unknown()),
  timeoutMs: z.number(),
  requestId: z.string(),
  madeBy: z.enum(['approvals', 'session']).default('approvals'),
});

const RowSchema = z.object({
  executionId: z.string(),
  status: ApprovalStatusSchema,
  call: z.string().transform((text) => CallSchema.parse(JSON.parse(text))),
  fingerprint: z.string(),
  isClaimed: z.number().transform((flag) => flag === 1),
  idempotencyKey: z.string().nullable(),
  idempotencyFingerprint: z.string().nullable(),
  requestedAtMs: z.number(),
  expiresAtMs: z.number(),
  decidedAtMs: z.number().nullable(),
  decidedBy: z.string().nullable(),
  /** What who decided said. */
  reason: z.string().nullable(),
  /** Why it was not made although it was approved. */
  refusal: z.string().nullable(),
  /** Of an approved one: it is in its session. */
  isMade: z.number().transform((flag) => flag === 1),
  /** How it stood when it was noted last among the events of its session. */
  notedStatus: ApprovalStatusSchema.nullable(),
  /** Where its end is told; null once that is the session's to do. */
  callback: z
    .string()
    .nullable()
    .transform((text) => (text === null ? null : SealedCallbackSchema.parse(JSON.parse(text)))),
});
export type ApprovalRow = z.infer<typeof RowSchema>;

export class ApprovalStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    ensureSchema(storage, { name: 'approvals', statements: SCHEMA, newerColumns: NEWER_COLUMNS });
  }

  /** Those that stand otherwise than the events of their session say. */
  unnoted(limit: number): ApprovalRow[] {
    return this.#sql
      .exec('SELECT * FROM approval WHERE notedStatus IS NOT status LIMIT ?', limit)
      .toArray()
      .map((row) => RowSchema.parse(row));
  }

  noted(executionId: string, status: ApprovalRow['status']): void {
    this.#sql.exec('UPDATE approval SET notedStatus = ? WHERE executionId = ?', status, executionId);
  }

  /** Decided ones that are not in their session, whose end it has not heard: those that have waited longest first. */
  owingEnd(limit: number): ApprovalRow[] {
    const sql =
      "SELECT * FROM approval WHERE owesEnd = 1 AND status <> 'waiting' ORDER BY decidedAtMs LIMIT ?";
    return this.#sql
      .exec(sql, limit)
      .toArray()
      .map((row) => RowSchema.parse(row));
  }

  endNoted(executionId: string): void {
    this.#sql.exec('UPDATE approval SET owesEnd = 0, callback = NULL WHERE executionId = ?', executionId);
  }

  insert(
    row: Omit<
      ApprovalRow,
      'isClaimed' | 'isMade' | 'decidedAtMs' | 'decidedBy' | 'reason' | 'refusal' | 'notedStatus'
    >,
  ): void {
    this.#sql.exec(
      `INSERT INTO approval (executionId, status, call, fingerprint, idempotencyKey, idempotencyFingerprint,
         requestedAtMs, expiresAtMs, callback, owesEnd, isMade) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)`,
      row.executionId,
      row.status,
      JSON.stringify(row.call),
      row.fingerprint,
      row.idempotencyKey,
      row.idempotencyFingerprint,
      row.requestedAtMs,
      row.expiresAtMs,
      row.callback === null ? null : JSON.stringify(row.callback),
      // The end of a call of a program is its session's to tell.
      row.call.madeBy === 'session' ? 0 : 1,
    );
  }

  /** False where it was decided before. */
  decide(
    executionId: string,
    decision: Pick<ApprovalRow, 'status' | 'decidedAtMs' | 'decidedBy' | 'reason'>,
  ): boolean {
    const { status, decidedAtMs, decidedBy, reason } = decision;
    const decided = this.#sql.exec(
      `UPDATE approval SET status = ?, decidedAtMs = ?, decidedBy = ?, reason = ?
       WHERE executionId = ? AND status = 'waiting'`,
      status,
      decidedAtMs,
      decidedBy,
      reason,
      executionId,
    );
    return decided.rowsWritten > 0;
  }

  refuse(executionId: string, refusal: string): void {
    this.#sql.exec('UPDATE approval SET refusal = ? WHERE executionId = ?', refusal, executionId);
  }

  made(executionId: string): void {
    this.#sql.exec('UPDATE approval SET isMade = 1 WHERE executionId = ?', executionId);
    this.endNoted(executionId);
  }

  /** Those of a caller in a session that are not in the session itself, the newest first, behind one of them. */
  ofSession(
    { sessionId, subject }: { sessionId: string; subject: string },
    { after, limit }: { after: { atMs: number; executionId: string } | null; limit: number },
  ): ApprovalRow[] {
    const atMs = after?.atMs ?? Number.MAX_SAFE_INTEGER;
    return this.#sql
      .exec(
        `SELECT * FROM approval
         WHERE json_extract(call, '$.sessionId') = ? AND json_extract(call, '$.caller.subject') = ? 
           AND NOT (status = 'approved' AND isMade = 1 AND refusal IS NULL) AND json_extract(call, '$.madeBy') IS NOT 'session'
           AND (requestedAtMs < ? OR (requestedAtMs = ? AND executionId < ?))
         ORDER BY requestedAtMs DESC, executionId DESC LIMIT ?`,
        sessionId,
        subject,
        atMs,
        atMs,
        after?.executionId ?? '',
        limit,
      )
      .toArray()
      .map((row) => RowSchema.parse(row));
  }

  claim(executionId: string): void {
    this.#sql.exec('UPDATE approval SET isClaimed = 1 WHERE executionId = ?', executionId);
  }

  byId(executionId: string): ApprovalRow | undefined {
    return this.#one('executionId = ?', executionId);
  }

  byKey(key: string): ApprovalRow | undefined {
    return this.#one('idempotencyKey = ?', key);
  }

  unclaimed(fingerprint: string): ApprovalRow | undefined {
    return this.#one('fingerprint = ? AND isClaimed = 0 ORDER BY requestedAtMs DESC', fingerprint);
  }

  waitingCount(): number {
    const [row] = this.#sql
      .exec("SELECT count(*) AS waiting FROM approval WHERE status = 'waiting'")
      .toArray();
    return Number(row?.waiting ?? 0);
  }

  waitingCountOf(subject: string): number {
    const found = this.#sql.exec(
      `SELECT count(*) AS waiting FROM approval
       WHERE status = 'waiting' AND json_extract(call, '$.caller.subject') = ?`,
      subject,
    );
    return Number(found.one().waiting);
  }

  /** As far as an answer may be large; one at least. */
  list(status: ApprovalRow['status'] | null, limit: number): ApprovalRow[] {
    const found = this.#sql.exec(
      'SELECT * FROM approval WHERE ? IS NULL OR status = ? ORDER BY requestedAtMs DESC LIMIT ?',
      status,
      status,
      limit,
    );
    const rows: ApprovalRow[] = [];
    let characters = 0;
    for (const row of found) {
      characters += typeof row.call === 'string' ? row.call.length : 0;
      if (rows.length > 0 && characters > MAX_LISTED_CHARACTERS) break;
      rows.push(RowSchema.parse(row));
    }
    return rows;
  }

  /** Of those that wait the first to expire. */
  nextExpiryMs(): number | null {
    const [row] = this.#sql
      .exec("SELECT min(expiresAtMs) AS atMs FROM approval WHERE status = 'waiting'")
      .toArray();
    return row?.atMs === null || row?.atMs === undefined ? null : Number(row.atMs);
  }

  expire(nowMs: number): void {
    this.#sql.exec(
      "UPDATE approval SET status = 'expired', decidedAtMs = expiresAtMs WHERE status = 'waiting' AND expiresAtMs <= ?",
      nowMs,
    );
  }

  /** Decided ones of which the session that waits has not heard. */
  untold(limit: number): ApprovalRow[] {
    const found = this.#sql.exec(
      `SELECT * FROM approval WHERE isTold = 0 AND status <> 'waiting'
       AND json_extract(call, '$.madeBy') = 'session' LIMIT ?`,
      limit,
    );
    return found.toArray().map((row) => RowSchema.parse(row));
  }

  told(executionId: string): void {
    this.#sql.exec('UPDATE approval SET isTold = 1 WHERE executionId = ?', executionId);
  }

  forget(requestedBeforeMs: number): void {
    this.#sql.exec("DELETE FROM approval WHERE status <> 'waiting' AND requestedAtMs < ?", requestedBeforeMs);
  }

  #one(where: string, value: string): ApprovalRow | undefined {
    const [row] = this.#sql.exec(`SELECT * FROM approval WHERE ${where} LIMIT 1`, value).toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }
}
