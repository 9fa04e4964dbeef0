/**
 * Long outputs on their way to R2: what a stream writes beyond what a result holds is kept in rows first, so that it is as
 * safe as any other, and goes from there in chunks. No more than a chunk of it is in memory.
 */
import type { Outcome } from '../../../../shared/errors.ts';
import type { StreamName } from '../../../../shared/execution.ts';
import { INLINE_BYTES, MAX_STORED_OUTPUT_BYTES } from '../../../../shared/limits.ts';
import { logWarning, messageOf } from '../../log.ts';
import { beyond, joinBytes } from '../event-logs/output-pieces.ts';
import type { OutputPiece } from '../rows/records.ts';
import { HeldStorage } from './held-storage.ts';
import type { StoredChunk } from './port.ts';
import type { OutputsStore } from './store.ts';

const CHUNK_BYTES = 1_048_576;
/**
 * Waiting in rows, of all executions together. Nothing is stored before its execution has ended and while another writes
 * much, so that no stream shares the object's thread with that; only beyond the first number it is, which is four outputs
 * of the greatest length, and beyond the second programs wait for the storage.
 */
const MAX_UNHURRIED_BYTES = 4 * MAX_STORED_OUTPUT_BYTES;
const MAX_WAITING_BYTES = 6 * MAX_STORED_OUTPUT_BYTES;
/** Whoever waits for the end hears of it before the work on its output begins. */
const ANSWER_FIRST_MS = 500;
/** Whether programs write much is looked at so often, by what came since the last look. */
const FLOW_LOOK_MS = 500;
const FLOW_BYTES = CHUNK_BYTES;
const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 300_000;
/** About 24 minutes. */
const MAX_TRIES = 12;
/** About a quarter of a minute: programs wait meanwhile. */
const MAX_TRIES_WHILE_FULL = 4;
const DROPPED_AT_ONCE = 16;

export interface OutputsPort {
  /** Whether long outputs of this session are stored at all. */
  isOn(): boolean;
  transaction<T>(work: () => T): T;
  put(executionId: string, stream: StreamName, chunk: StoredChunk, bytes: Uint8Array): Promise<void>;
  /** Removes a part of what is in R2, of one execution or of all; true when nothing is left. */
  removeSome(executionId: string | null): Promise<boolean>;
  /** Holds so many bytes of the tenant's storage for all outputs of the session. */
  hold(bytes: number, isStored: boolean): Promise<Outcome<null>>;
  /** Less of an execution that has ended is stored than was said. */
  cut(n: number, stored: Record<StreamName, number>): void;
  /** Work that nobody waits for. */
  inBackground(work: Promise<unknown>): void;
  /** Programs may write on. */
  roomAgain(): void;
  /** The alarm has to ring by then. */
  look(): void;
}

interface StreamState {
  /** Bytes from 0 on that are in rows or in R2 … */
  end: number;
  /** … and those that are in R2. */
  storedEnd: number;
  /** Nothing more of it is taken. */
  isStopped: boolean;
}

interface ExecutionState {
  executionId: string;
  streams: Partial<Record<StreamName, StreamState>>;
  hasEnded: boolean;
}

interface Upload {
  n: number;
  state: ExecutionState;
  name: StreamName;
  stream: StreamState;
}

const STREAMS = ['stdout', 'stderr'] as const satisfies readonly StreamName[];

export class Outputs {
  readonly store: OutputsStore;
  readonly #port: OutputsPort;
  readonly #held: HeldStorage;
  readonly #states = new Map<number, ExecutionState>();
  #waitingBytes = 0;
  /** That programs wrote since the last look, whether it is stored or not. */
  #flowedBytes = 0;
  #working: Promise<void> | undefined;
  #tries = 0;
  #retryAtMs: number | null = null;

  constructor(store: OutputsStore, port: OutputsPort) {
    this.store = store;
    this.#port = port;
    this.#held = new HeldStorage(store.heldBytes(), {
      wantedBytes: () => this.#wantedBytes(),
      cutBy: (excessBytes) => this.#cutBy(excessBytes),
      hold: (bytes, isStored) => port.hold(bytes, isStored),
      write: (bytes) => store.setHeldBytes(bytes),
    });
    for (const { n, executionId, stream, end, bytes } of store.waiting()) {
      const state = this.#stateOf({ n, executionId });
      const storedEnd = endOf(store.chunks(n, stream));
      state.streams[stream] = { end, storedEnd, isStopped: false };
      this.#waitingBytes += bytes;
    }
  }

  get dueAtMs(): number | null {
    return this.#retryAtMs;
  }

  /** Whether a program that goes on writing has to wait. */
  get isFull(): boolean {
    return this.#waitingBytes >= MAX_WAITING_BYTES;
  }

  /** Executions that run after this object was started anew are told apart from those that have ended. */
  recover(isOpen: (n: number) => boolean): void {
    for (const [n, state] of this.#states) state.hasEnded = !isOpen(n);
    const isSettled = this.#held.isTold || this.store.storedBytes() === this.#held.bytes;
    if (this.#states.size > 0 || this.store.dropped(1).length > 0 || !isSettled) this.kick();
  }

  /** The part of a piece, which no row of the replay window holds, that is to be stored. */
  take(execution: { n: number; executionId: string }, piece: OutputPiece): OutputPiece | undefined {
    this.#flowedBytes += piece.bytes.length;
    if (!this.#port.isOn() || piece.offset >= MAX_STORED_OUTPUT_BYTES) return undefined;
    const { streams } = this.#stateOf(execution);
    const state = streams[piece.stream] ?? this.#streamFrom(execution.n, piece);
    streams[piece.stream] = state;
    const fresh = beyond(piece, state.end);
    if (state.isStopped || fresh === undefined) return undefined;
    if (fresh.offset !== state.end) {
      state.isStopped = true;
      return undefined;
    }
    const bytes = fresh.bytes.subarray(0, MAX_STORED_OUTPUT_BYTES - fresh.offset);
    state.end += bytes.length;
    this.#waitingBytes += bytes.length;
    return { ...fresh, bytes };
  }

  /** Of one that runs on after this object was started anew a part may be stored. */
  #streamFrom(n: number, { stream, offset }: OutputPiece): StreamState {
    return { end: offset, storedEnd: endOf(this.store.chunks(n, stream)), isStopped: false };
  }

  /** Writes what was taken. The caller has a transaction open. */
  insert(n: number, pieces: readonly OutputPiece[]): void {
    for (const piece of pieces) this.store.insertSpill(n, piece);
    if (pieces.length > 0) this.kick();
  }

  /** An execution is about to end, and all of it is in rows: what of it will be stored is known when this resolves. */
  async settle(
    execution: { n: number; executionId: string },
    ends: Record<StreamName, number>,
  ): Promise<void> {
    if (!this.#port.isOn()) return;
    for (const stream of STREAMS) this.#include(execution, stream, ends[stream]);
    const state = this.#states.get(execution.n);
    if (state === undefined || this.#longStreams(state).length === 0) return;
    try {
      await this.#held.reserve();
    } catch (error: unknown) {
      logWarning('output_not_reserved', { detail: messageOf(error) });
    }
  }

  /** A long stream that fits the replay window has no rows of its own here. */
  #include(execution: { n: number; executionId: string }, stream: StreamName, end: number): void {
    if (end <= INLINE_BYTES) return;
    const { streams } = this.#stateOf(execution);
    if (streams[stream] !== undefined) return;
    const storedEnd = endOf(this.store.chunks(execution.n, stream));
    const known = this.store.rowsEnd(execution.n, stream, storedEnd);
    streams[stream] = { end: Math.min(known, MAX_STORED_OUTPUT_BYTES), storedEnd, isStopped: false };
  }

  /** Bytes of each stream of an execution that are stored or will be; null where none is longer than a result. */
  ended(n: number, ends: Record<StreamName, number>): Record<StreamName, number> | null {
    const state = this.#states.get(n);
    if (state !== undefined) {
      state.hasEnded = true;
      this.#flowedBytes = 0;
      this.#retryAtMs ??= Date.now() + ANSWER_FIRST_MS;
      this.#port.look();
    }
    const isLong = STREAMS.some((name) => ends[name] > INLINE_BYTES);
    if (!isLong || !this.#port.isOn()) return null;
    const of = (name: StreamName) =>
      state?.streams[name]?.end ?? this.store.rowsEnd(n, name, endOf(this.store.chunks(n, name)));
    return { stdout: of('stdout'), stderr: of('stderr') };
  }

  #longStreams(state: ExecutionState): [StreamName, StreamState][] {
    return STREAMS.flatMap((name) => {
      const stream = state.streams[name];
      return stream !== undefined && stream.end > INLINE_BYTES ? [[name, stream]] : [];
    });
  }

  /** Removes everything; throws where the storage does not answer. */
  async removeAll(): Promise<void> {
    this.#states.clear();
    // What is on its way would come after everything was removed.
    await this.#working;
    this.store.clear();
    if (this.store.heldBytes() === 0) return;
    while (!(await this.#port.removeSome(null)));
    await this.#held.giveBackAll();
  }

  /** Goes on with what waits. */
  kick(): void {
    if (this.#working !== undefined) return;
    if (this.#retryAtMs !== null && Date.now() < this.#retryAtMs) return;
    this.#working = this.#work().finally(() => {
      this.#working = undefined;
      this.#port.look();
    });
    this.#port.inBackground(this.#working);
  }

  async #work(): Promise<void> {
    try {
      // What is taken in this turn is in rows by the next one.
      await Promise.resolve();
      await this.#removeDropped();
      await this.#held.reserve();
      for (let next = this.#next(); next !== undefined; next = this.#next()) {
        if (this.#mayWait()) return;
        await this.#upload(next);
        await this.#held.reserve();
      }
      if (this.#states.size === 0) await this.#held.giveBack();
      this.#tries = 0;
      this.#retryAtMs = null;
    } catch (error: unknown) {
      logWarning('output_not_stored', { tries: this.#tries, detail: messageOf(error) });
      this.#failed();
    }
  }

  /** Whether a program writes much, and there is room to wait until it does no more; then it is looked at again. */
  #mayWait(): boolean {
    const isFlowing = this.#flowedBytes >= FLOW_BYTES;
    if (!isFlowing || this.#waitingBytes > MAX_UNHURRIED_BYTES) return false;
    this.#flowedBytes = 0;
    this.#retryAtMs = Date.now() + FLOW_LOOK_MS;
    return true;
  }

  #failed(): void {
    this.#tries += 1;
    if (this.#tries >= (this.isFull ? MAX_TRIES_WHILE_FULL : MAX_TRIES)) this.#giveUp();
    this.#retryAtMs = Date.now() + Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.#tries);
  }

  /** The storage has not answered for long: what waits for it is let go, so that no program waits for ever. */
  #giveUp(): void {
    this.#tries = 0;
    for (const [n, state] of this.#states) {
      for (const [name, stream] of this.#longStreams(state)) this.#cut(n, name, stream, stream.storedEnd);
    }
    this.#forgetDone();
  }

  async #removeDropped(): Promise<void> {
    for (
      let some = this.store.dropped(DROPPED_AT_ONCE);
      some.length > 0;
      some = this.store.dropped(DROPPED_AT_ONCE)
    ) {
      for (const executionId of some) {
        while (!(await this.#port.removeSome(executionId)));
        this.store.forgetDropped(executionId);
      }
      await this.#held.giveBack();
    }
  }

  /** The next chunk of a stream that has ended, or, where too much waits, the next whole one of any. */
  #next(): Upload | undefined {
    this.#forgetDone();
    for (const [n, state] of this.#states) {
      for (const [name, stream] of this.#longStreams(state)) {
        const waits = stream.end - stream.storedEnd;
        const isHurried = waits >= CHUNK_BYTES && this.#waitingBytes > MAX_UNHURRIED_BYTES;
        const isDue = isHurried || state.hasEnded || stream.isStopped;
        if (waits > 0 && isDue) return { n, state, name, stream };
      }
    }
    return undefined;
  }

  async #upload({ n, state, name, stream }: Upload): Promise<void> {
    const from = stream.storedEnd;
    const rows = this.store.rows(n, name, { from, maxBytes: CHUNK_BYTES });
    const bytes = joinBytes(rows.map((row) => row.bytes)).subarray(0, stream.end - from);
    if (bytes.length === 0) {
      // Pruned in the meantime.
      this.#cut(n, name, stream, from);
      return;
    }
    const chunk = { offset: from, length: bytes.length };
    await this.#port.put(state.executionId, name, chunk, bytes);
    // The execution may be gone from the history since.
    if (this.#states.get(n) !== state) {
      this.store.markDropped(state.executionId);
      return;
    }
    stream.storedEnd = from + bytes.length;
    this.#port.transaction(() => {
      this.store.addChunk(n, name, chunk);
      this.store.deleteSpill(n, name, { endsBy: stream.storedEnd });
    });
    // Near enough until an execution is done and all are counted: to count reads every row.
    this.#setWaiting(Math.max(0, this.#waitingBytes - bytes.length));
  }

  /** Streams that are wholly stored, or too short to be, need nothing more. */
  #forgetDone(): void {
    const before = this.#states.size;
    for (const [n, state] of this.#states) {
      if (!state.hasEnded) continue;
      const isDone = this.#longStreams(state).every(([, { end, storedEnd }]) => storedEnd >= end);
      if (!isDone) continue;
      for (const name of STREAMS) this.store.deleteSpill(n, name, { beginsFrom: 0 });
      this.#states.delete(n);
    }
    // To count reads every row: not with each piece that comes.
    if (this.#states.size < before) this.#recount();
  }

  #recount(): void {
    this.#setWaiting(this.store.waiting().reduce((sum, { bytes }) => sum + bytes, 0));
  }

  #setWaiting(bytes: number): void {
    const wasFull = this.isFull;
    this.#waitingBytes = bytes;
    if (wasFull && !this.isFull) this.#port.roomAgain();
  }

  /** In R2 and on the way there. */
  #wantedBytes(): number {
    let wanted = this.store.storedBytes();
    for (const state of this.#states.values()) {
      for (const [, { end, storedEnd }] of this.#longStreams(state)) wanted += end - storedEnd;
    }
    return wanted;
  }

  #cutBy(excess: number): void {
    let left = excess;
    for (const [n, state] of [...this.#states].reverse()) {
      for (const [name, stream] of this.#longStreams(state)) {
        const cut = Math.min(left, stream.end - stream.storedEnd);
        left -= cut;
        if (cut > 0) this.#cut(n, name, stream, stream.end - cut);
      }
    }
  }

  #cut(n: number, name: StreamName, stream: StreamState, end: number): void {
    stream.end = end;
    stream.isStopped = true;
    this.store.deleteSpill(n, name, { beginsFrom: end });
    const state = this.#states.get(n);
    if (state?.hasEnded === true) this.#port.cut(n, storedOf(state));
    this.#recount();
  }

  #stateOf({ n, executionId }: { n: number; executionId: string }): ExecutionState {
    const known = this.#states.get(n);
    if (known !== undefined) return known;
    const state: ExecutionState = { executionId, streams: {}, hasEnded: false };
    this.#states.set(n, state);
    return state;
  }
}

function endOf(chunks: readonly StoredChunk[]): number {
  const last = chunks.at(-1);
  return last === undefined ? 0 : last.offset + last.length;
}

function storedOf({ streams }: ExecutionState): Record<StreamName, number> {
  return { stdout: streams.stdout?.end ?? 0, stderr: streams.stderr?.end ?? 0 };
}
