/**
 * The threads that seal and open pieces, so that the thread of the links does not wait for it. They are there while there
 * is something to do, and a little longer; each has one piece at a time.
 */
import { isMarkedAsUntransferable, Worker } from 'node:worker_threads';
import type { SealedPiece, SealingKeys } from './sealed-piece.ts';
import type { SealingDone, SealingTask } from './sealing-thread.ts';

const THREADS = 2;
/** It takes as long to start a thread as to seal this many. */
const PIECES_WORTH_ANOTHER_THREAD = 8;
const KEPT_FOR_MS = 30_000;
/** Pieces are no part of the heap. */
const HEAP = { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 4 };

interface Work {
  task: SealingTask;
  transfer: ArrayBuffer[];
  resolve: (done: SealingDone) => void;
  reject: (error: Error) => void;
}

export class SealingThreads {
  readonly #keptForMs: number;
  readonly #idle: Worker[] = [];
  readonly #busy = new Map<Worker, Work>();
  readonly #waiting: Work[] = [];
  /** Pieces since there was no thread. */
  #begun = 0;
  #end: NodeJS.Timeout | undefined;

  constructor(keptForMs = KEPT_FOR_MS) {
    this.#keptForMs = keptForMs;
  }

  get count(): number {
    return this.#idle.length + this.#busy.size;
  }

  /** For work that will come soon: a thread takes a while to start. */
  warm(): void {
    if (this.count === 0) this.#idle.push(this.#start());
    this.#endWhenIdle();
  }

  /** The memory of `piece` is gone afterwards, if it is all of its buffer. Rejects where the thread died of it. */
  async seal(keys: SealingKeys, piece: Uint8Array<ArrayBuffer>): Promise<SealedPiece> {
    return (await this.#seal({ act: 'seal', keys, piece })).sealed;
  }

  /** The same, with the result in `into`, which is gone as well; gives the memory of the piece back. */
  async sealInto(
    keys: SealingKeys,
    piece: Uint8Array<ArrayBuffer>,
    into: ArrayBuffer,
  ): Promise<SealedPiece & { spent: ArrayBuffer | null }> {
    const { sealed, spent } = await this.#seal({ act: 'seal', keys, piece, into });
    return { ...sealed, spent };
  }

  async #seal(
    task: Extract<SealingTask, { act: 'seal' }>,
  ): Promise<Extract<SealingDone, { sealed: unknown }>> {
    const done = await this.#do(task, task.piece, task.into);
    if (!('sealed' in done)) throw new TypeError('a piece was opened, not sealed');
    return done;
  }

  /** As `seal`. */
  async open(
    keys: SealingKeys,
    stored: Uint8Array<ArrayBuffer>,
    bytes: number,
  ): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const done = await this.#do({ act: 'open', keys, stored, bytes }, stored);
    if (!('opened' in done)) throw new TypeError('a piece was sealed, not opened');
    return done.opened;
  }

  #do(
    task: SealingTask,
    { buffer, byteLength }: Uint8Array<ArrayBuffer>,
    into?: ArrayBuffer,
  ): Promise<SealingDone> {
    const isWhole = byteLength === buffer.byteLength && !isMarkedAsUntransferable(buffer);
    const transfer = [...(isWhole ? [buffer] : []), ...(into === undefined ? [] : [into])];
    return new Promise((resolve, reject) => {
      this.#waiting.push({ task, transfer, resolve, reject });
      this.#next();
    });
  }

  #next(): void {
    while (this.#waiting.length > 0) {
      const thread = this.#idle.pop() ?? (this.#isWorthAnother ? this.#start() : undefined);
      if (thread === undefined) return;
      const work = this.#waiting.shift();
      if (work === undefined) return;
      this.#begun += 1;
      this.#busy.set(thread, work);
      thread.ref();
      try {
        thread.postMessage(work.task, work.transfer);
      } catch (error: unknown) {
        this.#over(thread)?.reject(
          error instanceof Error ? error : new TypeError('it cannot be handed over'),
        );
      }
    }
    this.#endWhenIdle();
  }

  get #isWorthAnother(): boolean {
    return this.count === 0 || (this.count < THREADS && this.#begun >= PIECES_WORTH_ANOTHER_THREAD);
  }

  #start(): Worker {
    const thread = new Worker(new URL('./sealing-thread.ts', import.meta.url), { resourceLimits: HEAP });
    thread.unref();
    thread.on('message', (done: SealingDone) => {
      this.#over(thread)?.resolve(done);
      this.#next();
    });
    thread.on('error', (error) => this.#lost(thread, error));
    thread.on('exit', () => this.#lost(thread, new Error('the thread that seals has ended')));
    return thread;
  }

  #over(thread: Worker): Work | undefined {
    const work = this.#busy.get(thread);
    this.#busy.delete(thread);
    this.#idle.push(thread);
    thread.unref();
    return work;
  }

  #lost(thread: Worker, error: unknown): void {
    const work = this.#busy.get(thread);
    this.#busy.delete(thread);
    const at = this.#idle.indexOf(thread);
    if (at >= 0) this.#idle.splice(at, 1);
    work?.reject(error instanceof Error ? error : new Error(String(error)));
    if (work !== undefined) this.#next();
  }

  #endWhenIdle(): void {
    clearTimeout(this.#end);
    this.#end = setTimeout(() => {
      if (this.#busy.size > 0) return;
      for (const thread of this.#idle.splice(0)) void thread.terminate();
      this.#begun = 0;
    }, this.#keptForMs).unref();
  }
}
