/**
 * What an execution wrote, as its readers see it: the replay window in rows, then the ring in memory, then the last
 * bytes of each stream in rows. Everything but the ring is read from rows, so an eviction takes nothing but the ring.
 */
import type { StreamName } from '../../../../shared/execution.ts';
import {
  INLINE_HEAD_BYTES,
  MAX_FRAME_BYTES,
  MAX_RESULT_PARTS_BYTES,
  READER_GRACE_MS,
  REPLAY_WINDOW_BYTES,
} from '../../../../shared/limits.ts';
import { NewestProgress } from '../edge-calls/newest-progress.ts';
import type { ExecutionContent } from '../executions/result.ts';
import type { Outputs } from '../outputs/outputs.ts';
import type { ExecutionRecord, OutputPiece, PartPiece } from '../rows/records.ts';
import { TAIL_ROWS_FROM } from '../rows/row-numbers.ts';
import type { SessionStore } from '../rows/store.ts';
import { advance, beyond, joinBytes, joined, type PendingPiece } from './output-pieces.ts';
import { OutputRing } from './output-ring.ts';
import type { OutputExtent } from './output-rows.ts';

export type LoggedExecution = Pick<ExecutionRecord, 'n' | 'executionId' | 'sentAtMs' | 'timeoutMs'>;

/** What becomes of output beyond the replay window. */
export type OutputsOfLog = Pick<Outputs, 'take' | 'insert' | 'isFull'>;

/** Where a reader stands. */
export interface ReaderPosition {
  stdout: number;
  stderr: number;
  /** Next row of the window, next piece of the ring, next row of the last bytes. */
  row: number;
  ring: number;
  tailRow: number;
}

/** Bytes of the last part of a stream that a host may send, both streams together; beyond it they are let go. */
const MAX_TAIL_BYTES = 2 * 1024 * 1024;

const NO_BYTES = new Uint8Array(0);

const NOTHING_STORED: OutputExtent = {
  nextRow: 0,
  nextTailRow: TAIL_ROWS_FROM,
  nextPart: 0,
  stdoutEnd: 0,
  stderrEnd: 0,
  windowBytes: 0,
};

export class EventLog {
  readonly n: number;
  /** Of the calls that a program makes. */
  readonly progress = new NewestProgress<{ id: string; tool_name: string }>();
  readonly #record: LoggedExecution;
  readonly #store: SessionStore;
  readonly #outputs: OutputsOfLog;
  readonly #end: Record<StreamName, number>;
  readonly #ring = new OutputRing();
  readonly #readers = new Set<ReaderPosition>();
  readonly #readersOfSession: Set<ReaderPosition>;
  readonly #wakers = new Set<() => void>();
  readonly #onRelease: () => void;
  #pending: PendingPiece[] = [];
  #pendingParts: PartPiece[] = [];
  #pendingOutputs: OutputPiece[] = [];
  /** From here on frames wait for the storage of long outputs. */
  #storageHeldFrom: number | undefined;
  #pendingBytes = 0;
  #nextRow: number;
  #nextTailRow: number;
  #nextPart: number;
  #windowBytes: number;
  #windowOpen: boolean;
  #tailBytes = 0;
  #partBytes = 0;
  /** A program that nobody has read yet is not held back for whoever may come. */
  #hadReaders: boolean;
  /** Readers are not waited for: until one of them moves on … */
  #freeRun = false;
  /** … or ever again. */
  #unheld = false;
  #graceTimer: ReturnType<typeof setTimeout> | undefined;
  #ended = false;
  #isLetGo = false;

  /** `onRelease` is called when frames that were held may be acknowledged. */
  constructor(
    record: LoggedExecution,
    store: SessionStore,
    options: {
      onRelease: () => void;
      isNew: boolean;
      readers: Set<ReaderPosition>;
      outputs: OutputsOfLog;
    },
  ) {
    const { n } = record;
    this.n = n;
    this.#record = record;
    this.#store = store;
    this.#outputs = options.outputs;
    this.#onRelease = options.onRelease;
    this.#readersOfSession = options.readers;
    // With an eviction they went too, and come back.
    this.#hadReaders = !options.isNew;
    // A new execution has no rows: looking for them would cost as much as writing one.
    const extent = options.isNew ? NOTHING_STORED : store.output.extent(n);
    this.#end = { stdout: extent.stdoutEnd, stderr: extent.stderrEnd };
    this.#nextRow = extent.nextRow;
    this.#nextTailRow = extent.nextTailRow;
    this.#windowBytes = extent.windowBytes;
    // Once a frame did not fit, the window must not open again: what came since then is in no row.
    this.#windowOpen = this.#windowBytes + MAX_FRAME_BYTES <= REPLAY_WINDOW_BYTES;
    this.#nextPart = extent.nextPart;
  }

  get executionId(): string {
    return this.#record.executionId;
  }

  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  get hasReaders(): boolean {
    return this.#readers.size > 0;
  }

  get hasRing(): boolean {
    return !this.#ring.isEmpty;
  }

  /** Bytes that are in rows, or will be with the next flush. */
  get contentBytes(): number {
    return this.#windowBytes + this.#tailBytes + this.#partBytes;
  }

  /** Frame from which on nothing may be acknowledged yet. */
  get heldFrom(): number | undefined {
    // After the end the ring grows no more: it stays for its readers, and nobody has to wait for them.
    if (this.#ended) return undefined;
    const [ring, storage] = [this.#ring.heldFrom, this.#storageHeldFrom];
    if (ring === undefined || storage === undefined) return ring ?? storage;
    return Math.min(ring, storage);
  }

  /** The storage of long outputs takes more. */
  roomAgain(): void {
    if (this.#storageHeldFrom === undefined) return;
    this.#storageHeldFrom = undefined;
    this.#onRelease();
  }

  endOf(stream: StreamName): number {
    return this.#end[stream];
  }

  output(piece: OutputPiece, seq: number): void {
    const fresh = beyond(piece, this.#end[piece.stream]);
    if (fresh === undefined || this.#ended) return;
    this.#end[fresh.stream] = fresh.offset + fresh.bytes.length;
    this.#windowOpen &&= this.#windowBytes + fresh.bytes.length <= REPLAY_WINDOW_BYTES;
    // A stream may be short though the other has filled the window: what a result shows of its start is in rows too.
    const rowsTo = this.#windowOpen ? Number.POSITIVE_INFINITY : INLINE_HEAD_BYTES;
    const kept = this.#hasFreeRow ? fresh.bytes.subarray(0, Math.max(0, rowsTo - fresh.offset)) : NO_BYTES;
    if (kept.length > 0) {
      this.#windowBytes += kept.length;
      this.#pendingBytes += kept.length;
      this.#pending.push({ tail: false, piece: { ...fresh, bytes: kept } });
    }
    const rest = beyond(fresh, fresh.offset + kept.length);
    if (rest === undefined) return;
    this.#windowOpen = false;
    this.#keepForStorage(rest, seq);
    this.#ring.push({ ...rest, seq });
    this.#settle();
    this.wake();
  }

  #keepForStorage(rest: OutputPiece, seq: number): void {
    const taken = this.#outputs.take(this.#record, rest);
    if (taken === undefined) return;
    this.#pendingOutputs.push(taken);
    this.#pendingBytes += taken.bytes.length;
    if (this.#outputs.isFull) this.#storageHeldFrom ??= seq;
  }

  get #hasFreeRow(): boolean {
    return this.#nextRow + this.#pending.length < TAIL_ROWS_FROM;
  }

  /** Kept unless the window has it: only what is in rows outlives this object. */
  tail(piece: OutputPiece): void {
    const isInWindow = this.#windowOpen && piece.offset + piece.bytes.length <= this.#end[piece.stream];
    if (isInWindow) return;
    if (this.#ended || this.#tailBytes + piece.bytes.length > MAX_TAIL_BYTES) return;
    this.#tailBytes += piece.bytes.length;
    this.#pendingBytes += piece.bytes.length;
    this.#pending.push({ tail: true, piece });
  }

  part(part: PartPiece): void {
    if (this.#ended || this.#partBytes + part.bytes.length > MAX_RESULT_PARTS_BYTES) return;
    this.#partBytes += part.bytes.length;
    this.#pendingBytes += part.bytes.length;
    this.#pendingParts.push(part);
  }

  /** Writes what is pending. The caller has a transaction open. */
  flush(): void {
    for (const { tail, piece } of joined(this.#pending)) {
      this.#store.output.insert(this.n, tail ? this.#nextTailRow++ : this.#nextRow++, piece);
    }
    for (const part of this.#pendingParts) this.#store.output.insertPart(this.n, this.#nextPart++, part);
    const outputs = this.#pendingOutputs.map((piece) => ({ tail: false, piece }));
    if (outputs.length > 0) {
      this.#outputs.insert(
        this.n,
        joined(outputs).map(({ piece }) => piece),
      );
    }
    this.#pending = [];
    this.#pendingParts = [];
    this.#pendingOutputs = [];
    this.#pendingBytes = 0;
    this.wake();
  }

  /** Everything, while none of it is in rows yet: what is at hand need not be read back. */
  unflushed(): ExecutionContent | undefined {
    if (this.#hasRows) return undefined;
    return { pieces: this.#pending.map(({ piece }) => piece), parts: this.#pendingParts };
  }

  get #hasRows(): boolean {
    return this.#nextRow > 0 || this.#nextTailRow > TAIL_ROWS_FROM || this.#nextPart > 0;
  }

  /** Bytes of a stream as far as they are known without a hole from 0 on, rows and pending ones together. */
  wholeStream(stream: StreamName): Uint8Array {
    const rows = this.#hasRows ? this.#store.output.all(this.n) : [];
    const pieces: OutputPiece[] = [...rows, ...this.#pending.map(({ piece }) => piece)];
    const whole: Uint8Array[] = [];
    let end = 0;
    for (const piece of pieces) {
      if (piece.stream !== stream || piece.offset > end) continue;
      const fresh = beyond(piece, end);
      if (fresh === undefined) continue;
      whole.push(fresh.bytes);
      end += fresh.bytes.length;
    }
    return joinBytes(whole);
  }

  addReader(position: ReaderPosition): void {
    this.#hadReaders = true;
    this.#readers.add(position);
    this.#readersOfSession.add(position);
    this.#progressed();
  }

  removeReader(position: ReaderPosition): void {
    this.#readers.delete(position);
    this.#readersOfSession.delete(position);
    this.#settle();
    this.#forget();
  }

  /** Nobody new comes for what the ring holds. */
  letGo(): void {
    this.#isLetGo = true;
    this.#forget();
  }

  #forget(): void {
    if (this.#isLetGo && this.#readers.size === 0) this.#ring.clear();
  }

  /** The next pieces after a position, which moves behind them; empty when there is nothing yet. */
  read(position: ReaderPosition, maxBytes: number): OutputPiece[] {
    const rows = this.#readRows(position, maxBytes);
    const pieces = rows.length > 0 ? rows : this.#readRing(position, maxBytes);
    if (pieces.length > 0) this.#progressed();
    return pieces;
  }

  #readRows(position: ReaderPosition, maxBytes: number): OutputPiece[] {
    while (position.row < this.#nextRow) {
      const rows = this.#store.output.rows(this.n, { from: position.row, to: TAIL_ROWS_FROM }, maxBytes);
      position.row = (rows.at(-1)?.index ?? this.#nextRow - 1) + 1;
      const fresh = advance(position, rows);
      if (fresh.length > 0) return fresh;
    }
    return [];
  }

  #readRing(position: ReaderPosition, maxBytes: number): OutputPiece[] {
    // They lie before what the ring holds.
    if (this.#pending.length > 0) return [];
    const { pieces, next } = this.#ring.read(position.ring, maxBytes);
    position.ring = next;
    const fresh = advance(position, pieces);
    if (fresh.length > 0 || !this.#ended) return fresh;
    const rows = this.#store.output.rows(
      this.n,
      { from: Math.max(position.tailRow, TAIL_ROWS_FROM), to: Number.MAX_SAFE_INTEGER },
      maxBytes,
    );
    position.tailRow = (rows.at(-1)?.index ?? position.tailRow - 1) + 1;
    return advance(position, rows);
  }

  /** Nothing is added any more: readers may come to the end. */
  end(): void {
    const wasHeld = this.heldFrom !== undefined;
    this.#ended = true;
    clearTimeout(this.#graceTimer ?? null);
    if (wasHeld) this.#onRelease();
    this.wake();
  }

  get hasEnded(): boolean {
    return this.#ended;
  }

  /** Stops holding the program back for readers. */
  neverHold(): void {
    this.#unheld = true;
    this.#storageHeldFrom = undefined;
    this.#settle();
  }

  /** Resolves at the next change. */
  changed(): { promise: Promise<void>; cancel: () => void } {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wakers.add(resolve);
    return { promise, cancel: () => void this.#wakers.delete(resolve) };
  }

  wake(): void {
    const wakers = [...this.#wakers];
    this.#wakers.clear();
    for (const wake of wakers) wake();
  }

  #progressed(): void {
    this.#freeRun = false;
    clearTimeout(this.#graceTimer ?? null);
    this.#graceTimer = undefined;
    this.#settle();
  }

  /** Trims the ring; what stays over the budget waits for readers, but not longer than their grace. */
  #settle(): void {
    if (this.#ring.isEmpty || this.#ended) return;
    const held = this.#ring.heldFrom;
    this.#ring.trim((piece) => this.#runsFree || this.#wasReadByAll(piece));
    if (!this.#ring.isOverBudget) {
      clearTimeout(this.#graceTimer ?? null);
      this.#graceTimer = undefined;
    } else {
      this.#graceTimer ??= setTimeout(
        () => {
          this.#graceTimer = undefined;
          this.#freeRun = true;
          if (Date.now() >= this.#deadlineAtMs) this.#unheld = true;
          this.#settle();
        },
        Math.min(READER_GRACE_MS, Math.max(0, this.#deadlineAtMs - Date.now())),
      );
    }
    if (held !== undefined && held !== this.#ring.heldFrom) this.#onRelease();
  }

  get #runsFree(): boolean {
    return this.#freeRun || this.#unheld || !this.#hadReaders;
  }

  /** From here on the host ends the execution, and needs the way free to say so. */
  get #deadlineAtMs(): number {
    const { sentAtMs, timeoutMs } = this.#record;
    return sentAtMs === null ? Number.POSITIVE_INFINITY : sentAtMs + timeoutMs;
  }

  #wasReadByAll(piece: OutputPiece): boolean {
    if (this.#readers.size === 0) return false;
    const end = piece.offset + piece.bytes.length;
    for (const reader of this.#readers) if (reader[piece.stream] < end) return false;
    return true;
  }
}
