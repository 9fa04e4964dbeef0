/** A terminal in the guest: its program waits for who is attached, and it ends when nobody was for long. */
import { constants } from 'node:os';
import {
  type ProcessStream,
  TERMINAL_DETACHED_MS,
  TERMINAL_REPLAY_BYTES,
  type TerminalSignal,
  type WindowSize,
} from '../../../shared/program.ts';
import type { CarriedProgram } from './carried.ts';
import { GuestProgram, type ProgramFacts } from './guest-program.ts';
import type { Terminal } from './port.ts';

const KIND_RESIZE = 1;
const KIND_SIGNAL = 2;
/** Typed or pasted, and not taken by the guest: beyond it a writer waits. */
const MAX_WAITING_INPUT_BYTES = 256 * 1024;
/** What waits is held message by message, and one may be a single key. */
const HELD_MESSAGE_BYTES = 64;
/** Sizes and signals that a terminal which was stopped did not take; the size that was told last is told then. */
const MAX_WAITING_RECORDS = 256;

export class GuestTerminal extends GuestProgram implements Terminal {
  readonly #detachedMs: number;
  #attached = 0;
  #timer: NodeJS.Timeout | undefined;
  #waitingInputBytes = 0;
  #waitingRecords = 0;
  #heldSize: WindowSize | undefined;

  constructor(facts: ProgramFacts, detachedMs: number = TERMINAL_DETACHED_MS, carried?: CarriedProgram) {
    super(facts, TERMINAL_REPLAY_BYTES, carried);
    this.#detachedMs = detachedMs;
    this.#expectAttach();
    void this.ended.then(() => clearTimeout(this.#timer));
  }

  attach(): () => void {
    this.#attached += 1;
    clearTimeout(this.#timer);
    let isAttached = true;
    return () => {
      if (!isAttached) return;
      isAttached = false;
      this.#attached -= 1;
      if (this.#attached === 0) this.#expectAttach();
    };
  }

  async write(bytes: Uint8Array): Promise<void> {
    const heldBytes = bytes.length + HELD_MESSAGE_BYTES;
    this.#waitingInputBytes += heldBytes;
    const written = this.channel?.writeStdin(bytes).then(() => {
      this.#waitingInputBytes -= heldBytes;
    });
    // Not waited for as long as there is room: a signal has to pass a program that does not read.
    if (this.#waitingInputBytes > MAX_WAITING_INPUT_BYTES) await Promise.race([written, this.ended]);
  }

  resize(size: WindowSize): void {
    if (!this.#tell(KIND_RESIZE, size.rows, size.cols)) this.#heldSize = size;
  }

  signal(name: TerminalSignal): void {
    this.#tell(KIND_SIGNAL, constants.signals[name], 0);
  }

  override readonly take = (stream: ProcessStream, bytes: Uint8Array): Promise<void> => {
    this.ring.push(stream, bytes, this.slowest);
    this.wake();
    return this.#read(this.ring.endOffset);
  };

  /** Nobody is attached: then the oldest output is let go. */
  async #read(endOffset: number): Promise<void> {
    while (this.slowest < endOffset && this.end === undefined) await this.changed;
  }

  #expectAttach(): void {
    if (this.end !== undefined) return;
    this.#timer = setTimeout(() => void this.stop(0), this.#detachedMs).unref();
  }

  /** False where too many wait. */
  #tell(kind: number, first: number, second: number): boolean {
    if (this.#waitingRecords >= MAX_WAITING_RECORDS) return false;
    const record = Buffer.alloc(5);
    record.writeUInt8(kind, 0);
    record.writeUInt16BE(first, 1);
    record.writeUInt16BE(second, 3);
    this.#waitingRecords += 1;
    void this.channel?.sendControl(record).then(() => {
      this.#waitingRecords -= 1;
      const size = this.#heldSize;
      this.#heldSize = undefined;
      if (size !== undefined) this.resize(size);
    });
    return true;
  }
}
