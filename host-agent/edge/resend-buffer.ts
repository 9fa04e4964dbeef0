/** The numbered frames of one link that the edge has not acknowledged, bounded by the link's window. */
import type { SequencedUp } from '../../shared/frames.ts';
import type { StoredFrame } from '../journal/state.ts';

export interface BufferedFrame {
  seq: number;
  header: SequencedUp;
  /** What is sent before the payload. */
  head: Uint8Array;
  payload: Uint8Array;
}

interface Waiter {
  bytes: number;
  resolve: () => void;
}

export class ResendBuffer {
  #windowBytes: number;
  /** What control frames may take beyond the window. */
  readonly #reserveBytes: number;
  #frames: BufferedFrame[] = [];
  #bytes = 0;
  #lastSeq = 0;
  #ackedSeq = 0;
  #waiters: Waiter[] = [];
  #ackListeners: { seq: number; resolve: () => void }[] = [];

  constructor(limits: { windowBytes: number; reserveBytes: number }) {
    this.#windowBytes = limits.windowBytes;
    this.#reserveBytes = limits.reserveBytes;
  }

  get lastSeq(): number {
    return this.#lastSeq;
  }

  get ackedSeq(): number {
    return this.#ackedSeq;
  }

  get unackedBytes(): number {
    return this.#bytes;
  }

  /** Whether even the reserve is used up, so that what can be left out should be. */
  get isOverfull(): boolean {
    return this.#bytes > this.#windowBytes + this.#reserveBytes;
  }

  /** The edge may take less than this host would send, never more. */
  limitWindow(windowBytes: number): void {
    this.#windowBytes = Math.min(this.#windowBytes, windowBytes);
  }

  /** The link is closed for good: nothing will be acknowledged, so nobody waits any more. */
  abandon(): void {
    this.#windowBytes = Number.POSITIVE_INFINITY;
    this.#admit();
  }

  nextSeq(): number {
    return this.#lastSeq + 1;
  }

  /** Takes the frame that carries `nextSeq()`. */
  push(frame: Omit<BufferedFrame, 'seq'>): void {
    this.#lastSeq += 1;
    this.#frames.push({ ...frame, seq: this.#lastSeq });
    this.#bytes += sizeOf(frame);
  }

  /** Resolves when `bytes` fit into the window, in the order of asking; at once for anything on an empty link. */
  waitForRoom(bytes: number, signal?: AbortSignal): Promise<void> {
    if (this.#waiters.length === 0 && this.#hasRoom(bytes)) return Promise.resolve();
    return new Promise((resolve) => {
      const waiter = { bytes, resolve };
      this.#waiters.push(waiter);
      signal?.addEventListener(
        'abort',
        () => {
          const index = this.#waiters.indexOf(waiter);
          if (index < 0) return;
          this.#waiters.splice(index, 1);
          resolve();
          this.#admit();
        },
        { once: true },
      );
    });
  }

  /** Resolves when the edge has the frame with this number. */
  whenAcknowledged(seq: number): Promise<void> {
    if (seq <= this.#ackedSeq) return Promise.resolve();
    return new Promise((resolve) => this.#ackListeners.push({ seq, resolve }));
  }

  /** False where the edge acknowledges what was never sent. */
  acknowledge(seq: number): boolean {
    if (seq > this.#lastSeq) return false;
    if (seq <= this.#ackedSeq) return true;
    this.#ackedSeq = seq;
    let count = 0;
    for (const frame of this.#frames) {
      if (frame.seq > seq) break;
      this.#bytes -= sizeOf(frame);
      count += 1;
    }
    this.#frames.splice(0, count);
    const due = this.#ackListeners.filter((listener) => listener.seq <= seq);
    this.#ackListeners = this.#ackListeners.filter((listener) => listener.seq > seq);
    for (const listener of due) listener.resolve();
    this.#admit();
    return true;
  }

  unacknowledged(): readonly BufferedFrame[] {
    return this.#frames;
  }

  unacknowledgedOf(executionId: string): StoredFrame[] {
    return this.#frames
      .filter(({ header }) => 'execution_id' in header && header.execution_id === executionId)
      .map(({ header, payload }) => ({ header, payload }));
  }

  #hasRoom(bytes: number, promised = 0): boolean {
    const taken = this.#bytes + promised;
    return taken === 0 || taken + bytes <= this.#windowBytes;
  }

  #admit(): void {
    // A waiter pushes its frame only after its promise settles, so room is given to one waiter at a time per turn.
    let promised = 0;
    while (this.#waiters.length > 0) {
      const next = this.#waiters[0];
      if (next === undefined || !this.#hasRoom(next.bytes, promised)) return;
      promised += next.bytes;
      this.#waiters.shift();
      next.resolve();
    }
  }
}

function sizeOf({ head, payload }: Pick<BufferedFrame, 'head' | 'payload'>): number {
  return head.length + payload.length;
}
