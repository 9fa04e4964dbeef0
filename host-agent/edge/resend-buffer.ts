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
  executionId: string;
  resolve: () => void;
}

export class ResendBuffer {
  #windowBytes: number;
  /** What control frames may take beyond the window. */
  readonly #reserveBytes: number;
  /** What one execution may have in here however full it is. */
  readonly #shareBytes: number;
  #frames: BufferedFrame[] = [];
  #bytes = 0;
  #lastSeq = 0;
  #ackedSeq = 0;
  #waiters: Waiter[] = [];
  #ackListeners: { seq: number; resolve: () => void }[] = [];

  constructor(limits: { windowBytes: number; reserveBytes: number; shareBytes: number }) {
    this.#windowBytes = limits.windowBytes;
    this.#reserveBytes = limits.reserveBytes;
    this.#shareBytes = limits.shareBytes;
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

  /**
   * Resolves when `bytes` of the execution fit into the window, in the order of asking, or into its share; at once for
   * anything on an empty link.
   */
  waitForRoom(bytes: number, executionId: string, signal?: AbortSignal): Promise<void> {
    if (this.hasRoom(bytes, executionId)) return Promise.resolve();
    return new Promise((resolve) => {
      const waiter = { bytes, executionId, resolve };
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
  acknowledge(seq: number, beyond?: { seq: number; held: readonly string[] }): boolean {
    if (seq > this.#lastSeq || (beyond?.seq ?? 0) > this.#lastSeq) return false;
    if (seq > this.#ackedSeq) {
      this.#ackedSeq = seq;
      this.#letGo((frame) => frame.seq <= seq);
      const due = this.#ackListeners.filter((listener) => listener.seq <= seq);
      this.#ackListeners = this.#ackListeners.filter((listener) => listener.seq > seq);
      for (const listener of due) listener.resolve();
    }
    if (beyond !== undefined) {
      this.#letGo((frame) => frame.seq <= beyond.seq && !beyond.held.includes(executionOf(frame) ?? ''));
    }
    this.#admit();
    return true;
  }

  #letGo(isKeptByEdge: (frame: BufferedFrame) => boolean): void {
    this.#frames = this.#frames.filter((frame) => {
      if (!isKeptByEdge(frame)) return true;
      this.#bytes -= sizeOf(frame);
      return false;
    });
  }

  unacknowledged(): readonly BufferedFrame[] {
    return this.#frames;
  }

  unacknowledgedOf(executionId: string): StoredFrame[] {
    return this.#framesOf(executionId).map(({ header, payload }) => ({ header, payload }));
  }

  hasRoom(bytes: number, executionId: string): boolean {
    return (this.#waiters.length === 0 && this.#fits(bytes, 0)) || this.#fitsShare(bytes, executionId, 0);
  }

  #framesOf(executionId: string): BufferedFrame[] {
    return this.#frames.filter((frame) => executionOf(frame) === executionId);
  }

  #fits(bytes: number, promised: number): boolean {
    const taken = this.#bytes + promised;
    return taken === 0 || taken + bytes <= this.#windowBytes;
  }

  #fitsShare(bytes: number, executionId: string, promised: number): boolean {
    const share = Math.min(this.#shareBytes, this.#windowBytes / 2);
    if (promised + bytes > share) return false;
    const own = this.#framesOf(executionId).reduce((total, frame) => total + sizeOf(frame), promised);
    return own + bytes <= share;
  }

  #admit(): void {
    // A waiter pushes its frame only after its promise settles, so what is promised in this turn counts as taken.
    let promised = 0;
    const promisedTo = new Map<string, number>();
    let isFull = false;
    this.#waiters = this.#waiters.filter((waiter) => {
      const own = promisedTo.get(waiter.executionId) ?? 0;
      isFull ||= !this.#fits(waiter.bytes, promised);
      if (isFull && !this.#fitsShare(waiter.bytes, waiter.executionId, own)) return true;
      promised += waiter.bytes;
      promisedTo.set(waiter.executionId, own + waiter.bytes);
      waiter.resolve();
      return false;
    });
  }
}

function executionOf({ header }: BufferedFrame): string | undefined {
  return 'execution_id' in header ? (header.execution_id ?? undefined) : undefined;
}

function sizeOf({ head, payload }: Pick<BufferedFrame, 'head' | 'payload'>): number {
  return head.length + payload.length;
}
