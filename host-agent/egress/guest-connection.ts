/** One connection that a program of the guest has made to the proxy port, as a stream of the host. */
import { Duplex } from 'node:stream';
import type { BandwidthShare } from './bandwidth.ts';
import {
  CONNECTION_WINDOW_BYTES,
  closeMessage,
  creditMessage,
  dataMessage,
  endMessage,
  MAX_DATA_BYTES,
} from './messages.ts';

/** Small amounts are saved up: a message for each would cost more than the bytes. */
const CREDIT_STEP_BYTES = CONNECTION_WINDOW_BYTES / 4;

/** A client that has been told the end and goes on without a word for so long is cut. */
const LINGER_MS = 30_000;

interface PendingWrite {
  rest: Buffer;
  readonly done: (error?: Error | null) => void;
}

export class GuestConnection extends Duplex {
  readonly #id: number;
  readonly #send: (message: Buffer) => void;
  readonly #bandwidth: BandwidthShare;
  /** What the guest sent and no bandwidth was granted for yet; within its credit. */
  readonly #held: Buffer[] = [];
  #isHeldUp = false;
  /** What the guest may still send. */
  #guestCredit = CONNECTION_WINDOW_BYTES;
  /** What was given to the reader and not yet to the guest as credit. */
  #owed = 0;
  #isReaderFull = false;
  /** What the guest still takes. */
  #credit = CONNECTION_WINDOW_BYTES;
  #pending: PendingWrite | undefined;
  #isPendingHeldUp = false;
  #isEndReceived = false;
  #isEndSent = false;
  #isGuestClosed = false;
  #linger: NodeJS.Timeout | undefined;
  #idle: NodeJS.Timeout | undefined;

  constructor(id: number, send: (message: Buffer) => void, bandwidth: BandwidthShare) {
    super({ allowHalfOpen: true, highWaterMark: CONNECTION_WINDOW_BYTES });
    this.#id = id;
    this.#send = send;
    this.#bandwidth = bandwidth;
  }

  /** As of a socket: `timeout` is emitted when for so long nothing came and nothing went. HTTP servers set it. */
  setTimeout(timeoutMs: number): this {
    clearTimeout(this.#idle);
    this.#idle = undefined;
    if (timeoutMs > 0 && !this.destroyed) {
      this.#idle = setTimeout(() => this.emit('timeout'), timeoutMs).unref();
    }
    return this;
  }

  /** False when the guest sends beyond its credit. */
  receiveData(bytes: Buffer): boolean {
    this.#guestCredit -= bytes.length;
    if (this.#guestCredit < 0 || this.#isEndReceived) return false;
    if (this.destroyed) return true;
    this.#linger?.refresh();
    this.#idle?.refresh();
    this.#held.push(bytes);
    this.#letIn();
    return true;
  }

  receiveEnd(): void {
    this.#isEndReceived = true;
    clearTimeout(this.#linger);
    if (this.#held.length === 0 && !this.destroyed) this.push(null);
  }

  /** False when the guest gives back more than it was ever sent. */
  receiveCredit(bytes: number): boolean {
    this.#credit += bytes;
    if (this.#credit > CONNECTION_WINDOW_BYTES) return false;
    this.#pump();
    return true;
  }

  /** The guest's end is gone, by itself or with its sandbox. */
  receiveClosed(): void {
    this.#isGuestClosed = true;
    // After its own end and ours that is how a connection is over; before, something was cut.
    if (this.#isOver) return;
    this.destroy(Object.assign(new Error('the client is gone'), { code: 'ECONNRESET' }));
  }

  override _read(): void {
    this.#isReaderFull = false;
    this.#giveCredit();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#idle?.refresh();
    this.#pending = { rest: chunk, done };
    this.#pump();
  }

  override _final(done: (error?: Error | null) => void): void {
    if (!this.#isGuestClosed) this.#send(endMessage(this.#id));
    this.#isEndSent = true;
    if (!this.#isEndReceived) this.#linger = setTimeout(() => this.destroy(), LINGER_MS).unref();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    clearTimeout(this.#linger);
    clearTimeout(this.#idle);
    if (!this.#isGuestClosed && !this.#isOver) this.#send(closeMessage(this.#id));
    const pending = this.#pending;
    this.#pending = undefined;
    pending?.done(error ?? new Error('the connection was closed'));
    done(error);
  }

  /** Both sides have said their last: the guest closes it by itself. */
  get #isOver(): boolean {
    return this.#isEndReceived && this.#isEndSent;
  }

  #letIn(): void {
    for (let [bytes] = this.#held; bytes !== undefined && !this.#isHeldUp; [bytes] = this.#held) {
      const isGranted = this.#bandwidth.take(bytes.length, () => {
        this.#isHeldUp = false;
        this.#linger?.refresh();
        this.#idle?.refresh();
        this.#pushHeld();
        this.#letIn();
      });
      this.#isHeldUp = !isGranted;
      if (isGranted) this.#pushHeld();
    }
  }

  #pushHeld(): void {
    const bytes = this.#held.shift();
    if (bytes === undefined || this.destroyed) return;
    this.#owed += bytes.length;
    this.#isReaderFull = !this.push(bytes);
    if (!this.#isReaderFull) this.#giveCredit();
    if (this.#isEndReceived && this.#held.length === 0) this.push(null);
  }

  #giveCredit(): void {
    if (this.#owed < CREDIT_STEP_BYTES || this.#isGuestClosed || this.destroyed) return;
    this.#guestCredit += this.#owed;
    this.#send(creditMessage(this.#id, this.#owed));
    this.#owed = 0;
  }

  #pump(): void {
    const pending = this.#pending;
    if (pending === undefined || this.#isGuestClosed) return;
    while (pending.rest.length > 0 && this.#credit > 0 && !this.#isPendingHeldUp) {
      const count = Math.min(pending.rest.length, this.#credit, MAX_DATA_BYTES);
      const isGranted = this.#bandwidth.take(count, () => {
        this.#isPendingHeldUp = false;
        this.#idle?.refresh();
        this.#sendPending(count);
        this.#pump();
      });
      this.#isPendingHeldUp = !isGranted;
      if (isGranted) this.#sendPending(count);
    }
    if (pending.rest.length > 0) return;
    this.#pending = undefined;
    pending.done();
  }

  #sendPending(count: number): void {
    const pending = this.#pending;
    if (pending === undefined || this.#isGuestClosed) return;
    this.#send(dataMessage(this.#id, pending.rest.subarray(0, count)));
    pending.rest = pending.rest.subarray(count);
    this.#credit -= count;
  }
}
