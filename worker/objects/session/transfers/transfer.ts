/** One transfer as the session object sees it: what the host says of it, and the bytes under its window. */
import { type Failure, failure, success } from '../../../../shared/errors.ts';
import type { TransferDown, TransferUp } from '../../../../shared/frames.ts';
import { isErrorCode } from '../../../../shared/problem.ts';
import {
  TRANSFER_CHUNK_BYTES,
  TRANSFER_STALL_MS,
  type TransferHead,
  type TransferResult,
} from '../../../../shared/transfer.ts';

/** Behind the host's own watch, which says why. */
const SILENCE_MS = TRANSFER_STALL_MS + 10_000;

type WithoutPlace<Frame> = Frame extends unknown ? Omit<Frame, 'epoch' | 'transfer_id'> : never;
export type TransferFailure = Failure & { size?: number };

export class Transfer {
  readonly #send: (frame: WithoutPlace<TransferDown>, payload?: Uint8Array) => boolean;
  readonly #head = Promise.withResolvers<{ ok: true; value: TransferHead } | TransferFailure>();
  readonly #done = Promise.withResolvers<{ ok: true; value: TransferResult } | TransferFailure>();
  /** What came and was not read yet: at most the window. */
  readonly #received: Uint8Array[] = [];
  #receivedBytes = 0;
  #readBytes = 0;
  #toldBytes = 0;
  #sentBytes = 0;
  #takenBytes = 0;
  #end: { ok: true; value: TransferResult } | TransferFailure | undefined;
  #wake: (() => void) | undefined;
  #silence: ReturnType<typeof setTimeout> | undefined;
  readonly #mayBeSilent: boolean;
  readonly #windowBytes: number;

  constructor(
    send: (frame: WithoutPlace<TransferDown>, payload?: Uint8Array) => boolean,
    { mayBeSilent, windowBytes }: { mayBeSilent: boolean; windowBytes: number },
  ) {
    this.#send = send;
    this.#windowBytes = windowBytes;
    this.#mayBeSilent = mayBeSilent;
    this.#heard();
  }

  /** What is known before the bytes, or why there are none. */
  get head(): Promise<{ ok: true; value: TransferHead } | TransferFailure> {
    return this.#head.promise;
  }

  get done(): Promise<{ ok: true; value: TransferResult } | TransferFailure> {
    return this.#done.promise;
  }

  get hasEnded(): boolean {
    return this.#end !== undefined;
  }

  get bytes(): number {
    return this.#receivedBytes + this.#sentBytes;
  }

  /** False where the host breaks the rules. */
  receive(frame: TransferUp, payload: Uint8Array): boolean {
    if (this.#end !== undefined) return true;
    this.#heard();
    switch (frame.type) {
      case 'file_head':
        this.#head.resolve(success(frame.head));
        return true;
      case 'file_data':
        if (frame.offset !== this.#receivedBytes) return false;
        this.#receivedBytes += payload.length;
        if (this.#receivedBytes - this.#toldBytes > this.#windowBytes) return false;
        this.#received.push(payload);
        this.#wake?.();
        return true;
      case 'file_taken':
        if (frame.bytes > this.#sentBytes) return false;
        this.#takenBytes = Math.max(this.#takenBytes, frame.bytes);
        this.#wake?.();
        return true;
      case 'file_done':
        this.#settle(success(frame.result));
        return true;
      case 'file_failed': {
        const code = isErrorCode(frame.code) ? frame.code : 'transfer_failed';
        this.#settle({
          ...failure(code, frame.detail),
          ...(frame.size === null ? {} : { size: frame.size }),
        });
        return true;
      }
    }
  }

  /** The next bytes; undefined at the end, which may be a failure. */
  async next(): Promise<Uint8Array | undefined> {
    for (;;) {
      const bytes = this.#received.shift();
      if (bytes !== undefined) return bytes;
      if (this.#end !== undefined) return undefined;
      await this.#change();
    }
  }

  /** The bytes that `next` gave were passed on: the host may send as many more. */
  passedOn(bytes: number): void {
    this.#readBytes += bytes;
    this.#heard();
    // Told in steps: each is a frame.
    if (this.#readBytes - this.#toldBytes < this.#windowBytes / 4 || this.#end !== undefined) return;
    this.#toldBytes = this.#readBytes;
    this.#send({ type: 'file_taken', bytes: this.#readBytes });
  }

  /** Sends bytes as far as the host takes them; false when it takes no more. */
  async push(bytes: Uint8Array): Promise<boolean> {
    this.#heard();
    for (let at = 0; at < bytes.length; ) {
      while (this.#sentBytes - this.#takenBytes >= this.#windowBytes && !this.hasEnded) await this.#change();
      if (this.hasEnded) return false;
      const room = this.#takenBytes + this.#windowBytes - this.#sentBytes;
      const piece = bytes.subarray(at, at + Math.min(room, TRANSFER_CHUNK_BYTES));
      if (!this.#send({ type: 'file_data', offset: this.#sentBytes }, piece)) {
        this.fail(failure('transfer_failed', 'the link to the host was lost'));
        return false;
      }
      this.#sentBytes += piece.length;
      at += piece.length;
    }
    return true;
  }

  allPushed(): void {
    if (!this.hasEnded) this.#send({ type: 'file_end', bytes: this.#sentBytes });
  }

  /** Nobody wants it any more. */
  cancel(): void {
    this.giveUp(failure('transfer_failed', 'the transfer was cut'));
  }

  /** Tells the host that it need not go on. */
  giveUp(why: Failure): void {
    if (this.hasEnded) return;
    this.#send({ type: 'file_cancel' });
    this.fail(why);
  }

  fail(why: Failure): void {
    this.#settle(why);
  }

  #settle(end: { ok: true; value: TransferResult } | TransferFailure): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    clearTimeout(this.#silence ?? null);
    this.#head.resolve(end.ok ? success({ answer: 'stream', facts: null, offset: 0, length: null }) : end);
    this.#done.resolve(end);
    this.#wake?.();
  }

  async #change(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    await promise;
    this.#wake = undefined;
  }

  #heard(): void {
    if (this.#mayBeSilent) return;
    clearTimeout(this.#silence ?? null);
    this.#silence = setTimeout(
      () => this.giveUp(failure('host_unresponsive', 'the transfer moved nothing for too long')),
      SILENCE_MS,
    );
  }
}
