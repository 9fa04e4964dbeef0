/** SQL of the session object: the session, its executions, their output and the chain of receipts. */
import * as z from 'zod';
import { type Envelope, EnvelopeSchema } from '../../../../shared/dsse.ts';
import { ensureSchema } from '../../schema.ts';
import { EdgeCallStore } from '../edge-calls/store.ts';
import { EdgeReceiptStore } from '../edge-receipts/store.ts';
import { OutputRows } from '../event-logs/output-rows.ts';
import { OutputsStore } from '../outputs/store.ts';
import { ProgramStore } from '../programs/store.ts';
import {
  type ExecutionRecord,
  ExecutionRecordSchema,
  GrantReferenceSchema,
  json,
  type SessionRecord,
  SessionRecordSchema,
} from './records.ts';
import { ROWS_PER_EXECUTION } from './row-numbers.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS session (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  facts TEXT NOT NULL, state TEXT NOT NULL, errorCode TEXT, errorDetail TEXT,
  epoch INTEGER NOT NULL, grantSeq INTEGER NOT NULL,
  sandbox TEXT NOT NULL, sandboxId TEXT, attachAtMs INTEGER, hostKeyX TEXT, stateLost INTEGER NOT NULL,
  linkDownAtMs INTEGER, pausedAtMs INTEGER, snapshot TEXT,
  pendingSnapshot TEXT, generation INTEGER NOT NULL DEFAULT 0, streamId TEXT, lastSeq INTEGER NOT NULL,
  chainSeq INTEGER NOT NULL, chainSha256 TEXT NOT NULL,
  lastActivityAtMs INTEGER NOT NULL, expiresAtMs INTEGER, destroyAtMs INTEGER, destroyTries INTEGER NOT NULL, purgeAtMs INTEGER,
  retentionAtMs INTEGER, shell TEXT
);
CREATE TABLE IF NOT EXISTS execution (
  n INTEGER PRIMARY KEY,
  executionId TEXT NOT NULL UNIQUE,
  tool TEXT NOT NULL, toolVersion TEXT NOT NULL, calledAs TEXT, constraints TEXT, parentId TEXT, arguments TEXT, argsSha256 TEXT NOT NULL,
  timeoutMs INTEGER NOT NULL, relay TEXT NOT NULL, stdin INTEGER NOT NULL, encoding TEXT NOT NULL,
  status TEXT NOT NULL,
  idempotencyKey TEXT, fingerprint TEXT, requestId TEXT NOT NULL,
  epoch INTEGER NOT NULL, grants TEXT NOT NULL,
  createdAtMs INTEGER NOT NULL, sentAtMs INTEGER, deadlineAtMs INTEGER,
  startedAt TEXT, finishedAt TEXT, durationMs REAL,
  exitCode INTEGER, signal TEXT, error TEXT, reason TEXT, stateLost INTEGER NOT NULL,
  stdoutBytes INTEGER NOT NULL, stderrBytes INTEGER NOT NULL,
  admitMs REAL NOT NULL, placeMs REAL NOT NULL, interruptRequested INTEGER NOT NULL, input TEXT,
  truncated INTEGER NOT NULL, contentBytes INTEGER NOT NULL, stored TEXT, receiptSeq INTEGER,
  rollback INTEGER NOT NULL DEFAULT 0, rolledBack INTEGER NOT NULL DEFAULT 0, expired INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX IF NOT EXISTS execution_by_key ON execution (idempotencyKey) WHERE idempotencyKey IS NOT NULL;
-- No index of the open ones: it would be written twice by every call, and is only asked for when the object starts.
-- The id is the execution's number in the upper bits and the row's own in the lower ones, so that rows of an execution
-- lie together in order without an index beside the table.
CREATE TABLE IF NOT EXISTS output (
  id INTEGER PRIMARY KEY, stream TEXT NOT NULL, offset INTEGER NOT NULL, bytes BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS part (
  id INTEGER PRIMARY KEY, field TEXT NOT NULL, idx INTEGER NOT NULL, mime TEXT NOT NULL, last INTEGER NOT NULL, bytes BLOB NOT NULL
);
-- The highest number of the executions that are in the history no more: no other one is given it.
CREATE TABLE IF NOT EXISTS former_execution (id INTEGER PRIMARY KEY CHECK (id = 1), n INTEGER NOT NULL);
-- Hosts that the session had before, and the keys that they signed with.
CREATE TABLE IF NOT EXISTS former_host (hostId TEXT NOT NULL, keyX TEXT NOT NULL, PRIMARY KEY (hostId, keyX)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS receipt (seq INTEGER PRIMARY KEY, envelope TEXT NOT NULL);
`;

/** Objects of former versions have the tables without them. */
const NEWER_COLUMNS = [
  ['execution', 'calledAs', 'TEXT'],
  ['execution', 'parentId', 'TEXT'],
  ['execution', 'constraints', 'TEXT'],
  ['execution', 'stored', 'TEXT'],
  ['execution', 'rollback', 'INTEGER NOT NULL DEFAULT 0'],
  ['execution', 'rolledBack', 'INTEGER NOT NULL DEFAULT 0'],
  ['execution', 'expired', 'INTEGER NOT NULL DEFAULT 0'],
  ['session', 'pausedAtMs', 'INTEGER'],
  ['session', 'expiresAtMs', 'INTEGER'],
  ['session', 'snapshot', 'TEXT'],
  ['session', 'pendingSnapshot', 'TEXT'],
  ['session', 'generation', 'INTEGER NOT NULL DEFAULT 0'],
  ['session', 'retentionAtMs', 'INTEGER'],
  ['session', 'shell', 'TEXT'],
] as const;

/** Those that wait may bring a megabyte of arguments each. */
const COLUMNS_OF_SUMMARY = Object.keys(ExecutionRecordSchema.shape)
  .filter((column) => column !== 'arguments')
  .join(', ');

const OPEN = `status IN ('queued', 'granted', 'running', 'waiting')`;
const ENDED_BEFORE = `NOT (${OPEN}) AND createdAtMs < ?1 AND finishedAt < ?2`;

const FormerHostSchema = z.object({ hostId: z.string(), keyX: z.string() });

type Value = string | number | boolean | null | object;

export class SessionStore {
  readonly output: OutputRows;
  readonly #context: DurableObjectState;
  readonly #sql: SqlStorage;
  /** What belongs to an execution goes with it. */
  readonly #outputs: OutputsStore;
  readonly #programs: ProgramStore;
  readonly #edgeCalls: EdgeCallStore;
  readonly #edgeReceipts: EdgeReceiptStore;

  constructor(context: DurableObjectState) {
    this.#context = context;
    this.#sql = context.storage.sql;
    this.output = new OutputRows(this.#sql);
    this.#outputs = new OutputsStore(context.storage);
    this.#programs = new ProgramStore(context);
    this.#edgeCalls = new EdgeCallStore(context.storage);
    this.#edgeReceipts = new EdgeReceiptStore(context.storage);
    ensureSchema(context.storage, { name: 'session', statements: SCHEMA, newerColumns: NEWER_COLUMNS });
  }

  /** All of the writes in `work`, or none: then memory may differ from the rows, and the object starts again. */
  transaction<T>(work: () => T): T {
    try {
      return this.#context.storage.transactionSync(work);
    } catch (error: unknown) {
      this.#context.abort('a transaction failed');
      throw error;
    }
  }

  session(): SessionRecord | undefined {
    const [row] = this.#sql.exec('SELECT * FROM session').toArray();
    return row === undefined ? undefined : SessionRecordSchema.parse(row);
  }

  replaceSession(record: SessionRecord): void {
    this.#sql.exec('DELETE FROM session');
    this.#insert('session', { id: 1, ...record });
  }

  updateSession(patch: Partial<SessionRecord>): void {
    this.#update('session', patch, { column: 'id', value: 1 });
  }

  insertExecution(record: ExecutionRecord): void {
    this.#insert('execution', record);
  }

  updateExecution(n: number, patch: Partial<ExecutionRecord>): void {
    this.#update('execution', patch, { column: 'n', value: n });
  }

  execution(executionId: string): ExecutionRecord | undefined {
    return this.#executions('WHERE executionId = ?', executionId)[0];
  }

  executionId(n: number): string | undefined {
    const [row] = this.#sql.exec('SELECT executionId FROM execution WHERE n = ?', n).toArray();
    return typeof row?.executionId === 'string' ? row.executionId : undefined;
  }

  executionByKey(idempotencyKey: string): ExecutionRecord | undefined {
    return this.#executions('WHERE idempotencyKey = ?', idempotencyKey)[0];
  }

  /** In the order of their acceptance. */
  openExecutions(): ExecutionRecord[] {
    return this.#executions(`WHERE ${OPEN} ORDER BY n`);
  }

  /** The highest number that a grant of an execution had. */
  lastGrantSeq(): number {
    const [row] = this.#sql
      .exec("SELECT grants FROM execution WHERE grants <> '[]' ORDER BY n DESC LIMIT 1")
      .toArray();
    if (row === undefined) return 0;
    return Math.max(
      ...json(z.array(GrantReferenceSchema))
        .parse(row.grants)
        .map(({ seq }) => seq),
    );
  }

  /** Newest first, those before number `before`, without arguments. */
  executionsBefore(before: number, limit: number): ExecutionRecord[] {
    return this.#sql
      .exec(
        `SELECT ${COLUMNS_OF_SUMMARY}, NULL AS arguments FROM execution WHERE n < ? ORDER BY n DESC LIMIT ?`,
        before,
        limit,
      )
      .toArray()
      .map((row) => ExecutionRecordSchema.parse(row));
  }

  /** The highest that an execution of the session ever had. */
  lastNumber(): number {
    const [kept, gone] = ['execution', 'former_execution'].map((table) =>
      Number(this.#sql.exec(`SELECT COALESCE(MAX(n), 0) AS n FROM ${table}`).one().n),
    );
    return Math.max(kept ?? 0, gone ?? 0);
  }

  /** Executions up to this one may go, the newest among them. */
  keepNumber(n: number): void {
    this.#sql.exec(
      `INSERT INTO former_execution (id, n) VALUES (1, ?)
       ON CONFLICT (id) DO UPDATE SET n = MAX(former_execution.n, excluded.n)`,
      n,
    );
  }

  executionCount(): number {
    return Number(this.#sql.exec('SELECT COUNT(*) AS count FROM execution').one().count);
  }

  #executions(clause: string, ...bindings: (string | number)[]): ExecutionRecord[] {
    return this.#sql
      .exec(`SELECT * FROM execution ${clause}`, ...bindings)
      .toArray()
      .map((row) => ExecutionRecordSchema.parse(row));
  }

  addFormerHost(hostId: string, keyX: string): void {
    this.#sql.exec(
      'INSERT INTO former_host (hostId, keyX) VALUES (?, ?) ON CONFLICT DO NOTHING',
      hostId,
      keyX,
    );
  }

  formerHosts(): { hostId: string; keyX: string }[] {
    return this.#sql
      .exec('SELECT hostId, keyX FROM former_host')
      .toArray()
      .map((row) => FormerHostSchema.parse(row));
  }

  insertReceipt(seq: number, envelope: Envelope): void {
    this.#sql.exec('INSERT INTO receipt (seq, envelope) VALUES (?, ?)', seq, JSON.stringify(envelope));
  }

  receipt(seq: number): Envelope | undefined {
    const [row] = this.#sql.exec('SELECT envelope FROM receipt WHERE seq = ?', seq).toArray();
    return row === undefined ? undefined : json(EnvelopeSchema).parse(row.envelope);
  }

  /** Those behind position `after`, in order. */
  receipts(after: number, limit: number): Envelope[] {
    return this.#sql
      .exec('SELECT envelope FROM receipt WHERE seq > ? ORDER BY seq LIMIT ?', after, limit)
      .toArray()
      .map((row) => json(EnvelopeSchema).parse(row.envelope));
  }

  /** Removes an ended execution with its output; its receipt stays, the chain would break without it. */
  deleteExecution(n: number): void {
    this.deleteContent(n);
    this.#outputs.drop(n);
    this.#sql.exec('DELETE FROM execution WHERE n = ?', n);
    this.#programs.delete(n);
  }

  /** Ended ones, oldest first. The edge's own clock has to agree with the host's, which says when an execution ended. */
  endedBefore(beforeMs: number, limit: number): number[] {
    return this.#numbers(`${ENDED_BEFORE} ORDER BY n LIMIT ?3`, beforeMs, limit);
  }

  /** Those of which something may be kept that they wrote or gave. */
  unexpiredBefore(beforeMs: number, limit: number): number[] {
    return this.#numbers(`${ENDED_BEFORE} AND expired = 0 ORDER BY n LIMIT ?3`, beforeMs, limit);
  }

  #numbers(clause: string, beforeMs: number, limit: number): number[] {
    return this.#sql
      .exec(`SELECT n FROM execution WHERE ${clause}`, beforeMs, new Date(beforeMs).toISOString(), limit)
      .toArray()
      .map((row) => Number(row.n));
  }

  /** Of an ended execution only how it ended and how much it wrote is kept. */
  expireExecution(n: number): void {
    this.deleteContent(n);
    this.#outputs.drop(n);
    this.#sql.exec(
      `UPDATE execution SET expired = 1, contentBytes = 0, truncated = truncated OR stdoutBytes + stderrBytes > 0,
         error = CASE WHEN error IS NULL THEN NULL ELSE json_set(error, '$.message', '', '$.traceback', '') END,
         stored = CASE WHEN stored IS NULL THEN NULL ELSE '{"stdout":0,"stderr":0}' END
       WHERE n = ?`,
      n,
    );
    this.#programs.dropMessages(n);
  }

  deleteContent(n: number): void {
    for (const table of ['output', 'part']) {
      this.#sql.exec(
        `DELETE FROM ${table} WHERE id >= ? AND id < ?`,
        n * ROWS_PER_EXECUTION,
        (n + 1) * ROWS_PER_EXECUTION,
      );
    }
    this.#programs.dropArguments(n);
  }

  contentBytes(): number {
    return Number(
      this.#sql.exec('SELECT COALESCE(SUM(contentBytes), 0) AS bytes FROM execution').one().bytes,
    );
  }

  /** Ended executions that have content, oldest first. */
  endedWithContent(limit: number): { n: number; contentBytes: number }[] {
    return this.#sql
      .exec(
        `SELECT n, contentBytes FROM execution WHERE contentBytes > 0 AND NOT (${OPEN}) ORDER BY n LIMIT ?`,
        limit,
      )
      .toArray()
      .map((row) => ({ n: Number(row.n), contentBytes: Number(row.contentBytes) }));
  }

  oldestEnded(limit: number): { n: number }[] {
    return this.#sql
      .exec(`SELECT n FROM execution WHERE NOT (${OPEN}) ORDER BY n LIMIT ?`, limit)
      .toArray()
      .map((row) => ({ n: Number(row.n) }));
  }

  /** Ended executions that no idempotency key since then asks for, but for the newest `kept` of them. */
  unkeyedBeyond(kept: number, sinceMs: number): { n: number }[] {
    return this.#sql
      .exec(
        `SELECT n FROM execution WHERE NOT (${OPEN}) AND (idempotencyKey IS NULL OR createdAtMs < ?)
         ORDER BY n DESC LIMIT -1 OFFSET ?`,
        sinceMs,
        kept,
      )
      .toArray()
      .map((row) => ({ n: Number(row.n) }));
  }

  /** What is left of a destroyed session: executions that an idempotency key may still ask for. */
  deleteUnkeyed(): void {
    const rows = this.#sql.exec('SELECT n FROM execution WHERE idempotencyKey IS NULL').toArray();
    for (const row of rows) this.deleteExecution(Number(row.n));
  }

  deleteHistory(): void {
    for (const table of ['output', 'part', 'execution', 'receipt']) this.#sql.exec(`DELETE FROM ${table}`);
    for (const store of [this.#programs, this.#edgeCalls, this.#edgeReceipts]) store.clear();
  }

  #insert(table: string, row: Record<string, Value>): void {
    this.#sql.exec(insertText(table, Object.keys(row)), ...Object.values(row).map(stored));
  }

  #update(
    table: string,
    patch: Record<string, Value | undefined>,
    key: { column: string; value: number },
  ): void {
    const columns = Object.keys(patch);
    if (columns.length === 0) return;
    this.#sql.exec(
      `UPDATE ${table} SET ${columns.map((column) => `${column} = ?`).join(', ')} WHERE ${key.column} = ?`,
      ...Object.values(patch).map((value) => stored(value ?? null)),
      key.value,
    );
  }
}

function insertText(table: string, columns: readonly string[]): string {
  return `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${'?, '.repeat(columns.length - 1)}?)`;
}

function stored(value: Value): string | number | null | ArrayBuffer | Uint8Array {
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (value instanceof Uint8Array || value === null || typeof value !== 'object') return value;
  return JSON.stringify(value);
}
