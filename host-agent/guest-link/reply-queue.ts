/** Answers of the file server in the order they came; bounded by the credit of the control stream. */
import type { GuestFailure, GuestResult } from './failure.ts';
import type { FileReply } from './file-messages.ts';

export interface QueuedReply {
  readonly reply: FileReply;
  /** Bytes of credit to give back once it is taken. */
  readonly size: number;
}

export class ReplyQueue {
  readonly #replies: QueuedReply[] = [];
  readonly #takers: ((reply: GuestResult<QueuedReply>) => void)[] = [];
  #failure: GuestFailure | undefined;

  get hasReply(): boolean {
    return this.#replies.length > 0;
  }

  push(reply: QueuedReply): void {
    const taker = this.#takers.shift();
    if (taker !== undefined) taker({ ok: true, value: reply });
    else if (this.#failure === undefined) this.#replies.push(reply);
  }

  next(): Promise<GuestResult<QueuedReply>> {
    const reply = this.#replies.shift();
    if (reply !== undefined) return Promise.resolve({ ok: true, value: reply });
    if (this.#failure !== undefined) return Promise.resolve({ ok: false, failure: this.#failure });
    const { promise, resolve } = Promise.withResolvers<GuestResult<QueuedReply>>();
    this.#takers.push(resolve);
    return promise;
  }

  fail(failure: GuestFailure): void {
    this.#failure ??= failure;
    this.#replies.length = 0;
    for (const taker of this.#takers.splice(0)) taker({ ok: false, failure: this.#failure });
  }
}
