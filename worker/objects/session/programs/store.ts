/** SQL of programs: what they may do, what they did of it, and each of their calls. */
import * as z from 'zod';
import { CallErrorSchema, InnerCallStatusSchema } from '../../../../shared/code-mode.ts';
import { concatBytes } from '../../../../shared/encoding.ts';
import { LateTables } from '../../schema.ts';
import { MadeCallSchema } from '../edge-receipts/made.ts';
import { Flag, json } from '../rows/records.ts';
import { ROWS_PER_EXECUTION } from '../rows/row-numbers.ts';
import { type ProgramFacts, ProgramFactsSchema } from './port.ts';

const STATEMENTS = `
CREATE TABLE IF NOT EXISTS program (
  n INTEGER PRIMARY KEY, facts TEXT NOT NULL, calls INTEGER NOT NULL, writes INTEGER NOT NULL, bytes INTEGER NOT NULL
);
-- The time that its host said last is left to it.
CREATE TABLE IF NOT EXISTS program_clock (n INTEGER PRIMARY KEY, leftMs INTEGER NOT NULL);
-- The id is the execution's number in the upper bits and the call's in the lower ones.
CREATE TABLE IF NOT EXISTS inner_call (
  id INTEGER PRIMARY KEY, callId TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
  arguments TEXT, argumentsBytes INTEGER NOT NULL, status TEXT NOT NULL,
  shown INTEGER, mayRepeat INTEGER NOT NULL, answer TEXT, resultBytes INTEGER, error TEXT, isTaken INTEGER NOT NULL,
  createdAtMs INTEGER NOT NULL, finishedAtMs INTEGER, waitsUntilMs INTEGER
);
CREATE TABLE IF NOT EXISTS inner_call_piece (
  id INTEGER NOT NULL, offset INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (id, offset)
) WITHOUT ROWID;
`;

const SCHEMA = {
  name: 'programs',
  table: 'program',
  statements: STATEMENTS,
  newerColumns: [
    ['inner_call', 'made', 'TEXT'],
    ['inner_call', 'approval', 'TEXT'],
  ],
} as const;

const CALLS_PER_PROGRAM = ROWS_PER_EXECUTION;

const ProgramRowSchema = z.object({
  n: z.number(),
  facts: json(ProgramFactsSchema),
  calls: z.number(),
  writes: z.number(),
  bytes: z.number(),
});
export type ProgramRow = z.infer<typeof ProgramRowSchema>;

/** `received`: it is whole here, and nothing was done for it yet. */
const CallStatusSchema = z.enum(['received', ...InnerCallStatusSchema.options]);

/** A call that is made, and by whom: the caller of the program, the edge, or the session, where it is an execution of its own. */
export const MadeInnerCallSchema = MadeCallSchema.extend({ by: z.enum(['caller', 'edge', 'session']) });

const CallApprovalSchema = z.object({
  tool: z.object({ name: z.string(), version: z.string(), digest: z.string() }),
  timeoutMs: z.number(),
  given: z.boolean(),
});

const CallRowSchema = z.object({
  id: z.number(),
  callId: z.string(),
  name: z.string(),
  /** JSON; gone when the session keeps too much. */
  arguments: z.string().nullable(),
  argumentsBytes: z.number(),
  status: CallStatusSchema,
  /** Its place among those that the caller executes. */
  shown: z.number().nullable(),
  /** Whether it may be made again where its end was not seen. */
  mayRepeat: Flag,
  /** What the host is sent. */
  answer: z.string().nullable(),
  resultBytes: z.number().nullable(),
  error: json(CallErrorSchema).nullable(),
  isTaken: Flag,
  createdAtMs: z.number(),
  finishedAtMs: z.number().nullable(),
  waitsUntilMs: z.number().nullable(),
  /** Null before it is made, and of one of a former version. */
  made: json(MadeInnerCallSchema).nullable(),
  /** Of a call that somebody else has to allow: of which definition of the tool, and whether they did. */
  approval: json(CallApprovalSchema).nullable(),
});
export type CallRow = z.infer<typeof CallRowSchema>;

const COLUMNS_OF_SUMMARY = Object.keys(CallRowSchema.shape)
  .filter((column) => column !== 'arguments' && column !== 'answer')
  .join(', ');

type Stored = string | number | boolean | object | null;

export class ProgramStore {
  readonly #tables: LateTables;

  constructor(context: DurableObjectState) {
    this.#tables = new LateTables(context.storage, SCHEMA);
  }

  /** Former versions may have left one with this number whose execution was never written. */
  insert(n: number, facts: ProgramFacts): void {
    this.#tables.sql.exec(
      'INSERT OR REPLACE INTO program (n, facts, calls, writes, bytes) VALUES (?, ?, 0, 0, 0)',
      n,
      JSON.stringify(facts),
    );
  }

  find(n: number): ProgramRow | undefined {
    if (!this.#tables.areMade) return undefined;
    const [row] = this.#tables.sql.exec('SELECT * FROM program WHERE n = ?', n).toArray();
    return row === undefined ? undefined : ProgramRowSchema.parse(row);
  }

  use(n: number, used: { calls: number; writes: number; bytes: number }): void {
    this.#tables.sql.exec(
      'UPDATE program SET calls = calls + ?, writes = writes + ?, bytes = bytes + ? WHERE n = ?',
      used.calls,
      used.writes,
      used.bytes,
      n,
    );
  }

  /** Undefined before its clock stood still for the first time. */
  leftMs(n: number): number | undefined {
    if (!this.#tables.areMade) return undefined;
    const [row] = this.#tables.sql.exec('SELECT leftMs FROM program_clock WHERE n = ?', n).toArray();
    return row === undefined ? undefined : Number(row.leftMs);
  }

  setLeft(n: number, leftMs: number): void {
    this.#tables.sql.exec('INSERT OR REPLACE INTO program_clock (n, leftMs) VALUES (?, ?)', n, leftMs);
  }

  /** Bytes that are kept of the arguments of a call that is not whole yet. */
  pieceBytes(n: number, call: number): number {
    const id = idOf(n, call);
    const row = this.#tables.sql
      .exec('SELECT COALESCE(SUM(LENGTH(bytes)), 0) AS bytes FROM inner_call_piece WHERE id = ?', id)
      .one();
    return Number(row.bytes);
  }

  insertPiece(n: number, call: number, piece: { offset: number; bytes: Uint8Array }): void {
    const { offset, bytes } = piece;
    this.#tables.sql.exec(
      'INSERT INTO inner_call_piece (id, offset, bytes) VALUES (?, ?, ?)',
      idOf(n, call),
      offset,
      bytes,
    );
  }

  /** All calls that are not whole yet. */
  dropPieces(n: number): void {
    if (!this.#tables.areMade) return;
    this.#tables.sql.exec('DELETE FROM inner_call_piece WHERE id >= ? AND id < ?', ...rangeOf(n));
  }

  takePieces(n: number, call: number): Uint8Array {
    const id = idOf(n, call);
    const rows = this.#tables.sql.exec('SELECT bytes FROM inner_call_piece WHERE id = ? ORDER BY offset', id);
    const pieces = rows.toArray().map((row) => new Uint8Array(z.instanceof(ArrayBuffer).parse(row.bytes)));
    this.#tables.sql.exec('DELETE FROM inner_call_piece WHERE id = ?', id);
    return concatBytes(pieces);
  }

  insertCall(n: number, call: number, row: Omit<CallRow, 'id'>): CallRow {
    const whole = { id: idOf(n, call), ...row };
    const columns = Object.keys(whole);
    this.#tables.sql.exec(
      `INSERT INTO inner_call (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')})`,
      ...Object.values(whole).map(stored),
    );
    return whole;
  }

  patchCall(row: CallRow, patch: Partial<CallRow>): void {
    const columns = Object.keys(patch);
    this.#tables.sql.exec(
      `UPDATE inner_call SET ${columns.map((column) => `${column} = ?`).join(', ')} WHERE id = ?`,
      ...Object.values(patch).map((value) => stored(value ?? null)),
      row.id,
    );
    Object.assign(row, patch);
  }

  call(n: number, call: number): CallRow | undefined {
    return this.#calls('WHERE id = ?', idOf(n, call))[0];
  }

  /** Number of the last one, 0 before the first. */
  lastCall(n: number): number {
    const [from, to] = rangeOf(n);
    const row = this.#tables.sql
      .exec('SELECT MAX(id) AS id FROM inner_call WHERE id >= ? AND id < ?', from, to)
      .one();
    return row.id === null ? 0 : Number(row.id) - from;
  }

  callById(n: number, callId: string): CallRow | undefined {
    return this.#calls('WHERE callId = ? AND id >= ? AND id < ?', callId, ...rangeOf(n))[0];
  }

  /** Of any program. */
  callWithId(callId: string): CallRow | undefined {
    return this.#calls('WHERE callId = ?', callId)[0];
  }

  /** Of all programs, the newest first, those before a place, without arguments and answers. */
  callsBefore({ n, call }: { n: number; call: number }, limit: number): CallRow[] {
    if (!this.#tables.areMade) return [];
    return this.#tables.sql
      .exec(
        `SELECT ${COLUMNS_OF_SUMMARY}, NULL AS arguments, NULL AS answer FROM inner_call
         WHERE id < ? ORDER BY id DESC LIMIT ?`,
        idOf(n, call),
        limit,
      )
      .toArray()
      .map((row) => CallRowSchema.parse(row));
  }

  /** The newest ones, in their order. */
  calls(n: number, limit: number): CallRow[] {
    return this.#calls('WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT ?', ...rangeOf(n), limit).reverse();
  }

  callsIn(n: number, statuses: readonly CallRow['status'][]): CallRow[] {
    const marks = statuses.map(() => '?').join(', ');
    return this.#calls(
      `WHERE id >= ? AND id < ? AND status IN (${marks}) ORDER BY id`,
      ...rangeOf(n),
      ...statuses,
    );
  }

  /** Those that have an answer which the program has not taken. */
  untaken(n: number): CallRow[] {
    return this.#calls(
      'WHERE id >= ? AND id < ? AND answer IS NOT NULL AND isTaken = 0 ORDER BY id',
      ...rangeOf(n),
    );
  }

  /** Those that the caller executes, behind place `after`. */
  shown(n: number, after: number, limit: number): CallRow[] {
    return this.#calls(
      'WHERE id >= ? AND id < ? AND shown > ? ORDER BY shown LIMIT ?',
      ...rangeOf(n),
      after,
      limit,
    );
  }

  lastShown(n: number): number {
    const row = this.#tables.sql
      .exec('SELECT COALESCE(MAX(shown), 0) AS shown FROM inner_call WHERE id >= ? AND id < ?', ...rangeOf(n))
      .one();
    return Number(row.shown);
  }

  /** Bytes of arguments and of answers that are kept of its calls. */
  keptBytes(n: number): number {
    if (!this.#tables.areMade) return 0;
    const row = this.#tables.sql
      .exec(
        `SELECT COALESCE(SUM(octet_length(arguments)), 0) + COALESCE(SUM(octet_length(answer)), 0) + (
           SELECT COALESCE(SUM(octet_length(bytes)), 0) FROM inner_call_piece WHERE id >= ?1 AND id < ?2) AS bytes
         FROM inner_call WHERE id >= ?1 AND id < ?2`,
        ...rangeOf(n),
      )
      .one();
    return Number(row.bytes);
  }

  /** The program has ended: what was kept for its sake goes. Gives how much of its calls stays. */
  letGo(n: number): number {
    const range = rangeOf(n);
    this.dropPieces(n);
    this.#tables.sql.exec('DELETE FROM program_clock WHERE n = ?', n);
    this.#tables.sql.exec('UPDATE inner_call SET answer = NULL WHERE id >= ? AND id < ?', ...range);
    this.#tables.sql.exec(
      'UPDATE inner_call SET arguments = NULL WHERE shown IS NULL AND id >= ? AND id < ?',
      ...range,
    );
    const row = this.#tables.sql
      .exec(
        'SELECT COALESCE(SUM(LENGTH(arguments)), 0) AS bytes FROM inner_call WHERE id >= ? AND id < ?',
        ...range,
      )
      .one();
    return Number(row.bytes);
  }

  /** The program with its calls. */
  delete(n: number): void {
    if (!this.#tables.areMade) return;
    this.#tables.sql.exec('DELETE FROM program WHERE n = ?', n);
    this.#tables.sql.exec('DELETE FROM inner_call WHERE id >= ? AND id < ?', ...rangeOf(n));
    this.dropPieces(n);
  }

  dropArguments(n: number): void {
    if (!this.#tables.areMade) return;
    this.#tables.sql.exec('UPDATE inner_call SET arguments = NULL WHERE id >= ? AND id < ?', ...rangeOf(n));
  }

  /** What its calls failed with is left as a code. */
  dropMessages(n: number): void {
    if (!this.#tables.areMade) return;
    this.#tables.sql.exec(
      `UPDATE inner_call SET error = json_set(error, '$.message', '') WHERE error IS NOT NULL AND id >= ? AND id < ?`,
      ...rangeOf(n),
    );
  }

  clear(): void {
    if (!this.#tables.areMade) return;
    for (const table of ['program', 'inner_call', 'inner_call_piece'])
      this.#tables.sql.exec(`DELETE FROM ${table}`);
  }

  #calls(clause: string, ...bindings: (string | number)[]): CallRow[] {
    if (!this.#tables.areMade) return [];
    return this.#tables.sql
      .exec(`SELECT * FROM inner_call ${clause}`, ...bindings)
      .toArray()
      .map((row) => CallRowSchema.parse(row));
  }
}

/** Number of its program. */
export function programOfCall(row: Pick<CallRow, 'id'>): number {
  return Math.floor(row.id / CALLS_PER_PROGRAM);
}

/** Number of the call within its program. */
export function numberOf(row: Pick<CallRow, 'id'>): number {
  return row.id % CALLS_PER_PROGRAM;
}

function idOf(n: number, call: number): number {
  return n * CALLS_PER_PROGRAM + call;
}

export function rangeOf(n: number): [number, number] {
  return [n * CALLS_PER_PROGRAM, (n + 1) * CALLS_PER_PROGRAM];
}

function stored(value: Stored): string | number | null {
  if (typeof value === 'boolean') return value ? 1 : 0;
  return value === null || typeof value !== 'object' ? value : JSON.stringify(value);
}
