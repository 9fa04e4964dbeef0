/** Bytes on their way into a program: sent as far as the guest has given credit, the rest waits, bounded. */
import type { CarriedInput } from './carried.ts';
import { fail, type GuestFailure, type GuestResult, succeed } from './failure.ts';

/** What the supervisor takes of each input stream before it gives credit; its queue has this size. */
export const INPUT_WINDOW_BYTES = 64 * 1024;
const MAX_FRAME_CHUNK_BYTES = 32 * 1024;
/** Takes the longest cell there can be, with every character escaped. */
export const MAX_WAITING_BYTES = 8 * 1024 * 1024;

/** However small each is: one takes room of its own here. */
export const MAX_WAITING_WRITES = 4_096;

interface WaitingWrite {
  rest: Uint8Array;
  readonly settle: (result: GuestResult<void>) => void;
}

export class InputWindow {
  readonly #send: (bytes: Uint8Array) => void;
  readonly #waiting: WaitingWrite[] = [];
  #waitingBytes = 0;
  #credit = INPUT_WINDOW_BYTES;
  #failure: GuestFailure | undefined;
  #isClosed = false;
  #isHeld = false;
  #onDrained: (() => void) | undefined;

  constructor(send: (bytes: Uint8Array) => void, carried?: CarriedInput) {
    this.#send = send;
    if (carried === undefined) return;
    this.#credit = carried.credit;
    this.#isClosed = carried.is_closed;
  }

  carry(): CarriedInput {
    return {
      credit: this.#credit,
      is_closed: this.#isClosed,
      is_ending: this.#onDrained !== undefined,
      waiting: Buffer.concat(this.#waiting.map(({ rest }) => rest)).toString('base64'),
    };
  }

  /** Settles when the last of the bytes was sent. */
  write(bytes: Uint8Array): Promise<GuestResult<void>> {
    if (this.#failure !== undefined) return Promise.resolve({ ok: false, failure: this.#failure });
    if (this.#onDrained !== undefined || this.#isClosed)
      return Promise.resolve(fail('channel_ended', 'the input was closed before'));
    if (this.#waitingBytes + bytes.byteLength > MAX_WAITING_BYTES)
      return Promise.resolve(fail('limit', `more than ${MAX_WAITING_BYTES} bytes of input wait`));
    if (this.#waiting.length >= MAX_WAITING_WRITES)
      return Promise.resolve(fail('limit', `more than ${MAX_WAITING_WRITES} writes of input wait`));
    const { promise, resolve } = Promise.withResolvers<GuestResult<void>>();
    this.#waiting.push({ rest: bytes, settle: resolve });
    this.#waitingBytes += bytes.byteLength;
    this.#pump();
    return promise;
  }

  /** Calls `onDrained` once everything written so far was sent; no write is taken afterwards. */
  end(onDrained: () => void): void {
    if (this.#onDrained !== undefined || this.#isClosed || this.#failure !== undefined) return;
    this.#onDrained = onDrained;
    this.#pump();
  }

  /** False when the guest gives back more than it was ever sent. */
  grant(bytes: number): boolean {
    this.#credit += bytes;
    if (this.#credit > INPUT_WINDOW_BYTES) return false;
    this.#pump();
    return true;
  }

  fail(failure: GuestFailure): void {
    this.#failure ??= failure;
    this.#drop(this.#failure);
  }

  /** Lets go of what waits, and takes writes again after the end. Credit counts on. */
  renew(): void {
    this.#drop({ reason: 'channel_ended', message: 'the input was meant for what ran before' });
    this.#onDrained = undefined;
    this.#isClosed = false;
  }

  #drop(failure: GuestFailure): void {
    for (const write of this.#waiting.splice(0)) write.settle({ ok: false, failure });
    this.#waitingBytes = 0;
  }

  /** Nothing is sent until `goOn`. */
  hold(): void {
    this.#isHeld = true;
  }

  goOn(): void {
    this.#isHeld = false;
    this.#pump();
  }

  #pump(): void {
    if (this.#isHeld) return;
    for (let first = this.#waiting[0]; first !== undefined; first = this.#waiting[0]) {
      while (first.rest.byteLength > 0 && this.#credit > 0) {
        const count = Math.min(first.rest.byteLength, this.#credit, MAX_FRAME_CHUNK_BYTES);
        this.#send(first.rest.subarray(0, count));
        first.rest = first.rest.subarray(count);
        this.#credit -= count;
        this.#waitingBytes -= count;
      }
      if (first.rest.byteLength > 0) return;
      this.#waiting.shift();
      first.settle(succeed(undefined));
    }
    if (this.#onDrained !== undefined && this.#failure === undefined) {
      this.#onDrained();
      this.#onDrained = undefined;
      this.#isClosed = true;
    }
  }
}
