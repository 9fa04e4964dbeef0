/** A terminal in the guest: its program waits for who is attached, and it ends when nobody was for long. */
import { constants } from 'node:os';
import {
  TERMINAL_DETACHED_MS,
  TERMINAL_REPLAY_BYTES,
  type TerminalSignal,
  type WindowSize,
} from '../../../shared/program.ts';
import type { CarriedProgram } from './carried.ts';
import type { ProgramFacts } from './guest-program.ts';
import { PipedProgram } from './piped-program.ts';
import type { Terminal } from './port.ts';

const KIND_RESIZE = 1;
const KIND_SIGNAL = 2;
/** Sizes and signals that a terminal which was stopped did not take; the size that was told last is told then. */
const MAX_WAITING_RECORDS = 256;

export class GuestTerminal extends PipedProgram implements Terminal {
  readonly #detachedMs: number;
  #attached = 0;
  #timer: NodeJS.Timeout | undefined;
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

  resize(size: WindowSize): void {
    if (!this.#tell(KIND_RESIZE, size.rows, size.cols)) this.#heldSize = size;
  }

  signal(name: TerminalSignal): void {
    this.#tell(KIND_SIGNAL, constants.signals[name], 0);
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
