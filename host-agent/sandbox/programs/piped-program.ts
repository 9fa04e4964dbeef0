/** A program in the guest that is written to, and whose output waits for who follows it. */
import type { ProcessStream } from '../../../shared/program.ts';
import { GuestProgram } from './guest-program.ts';
import type { PipedProcess } from './port.ts';

/** Written to it, and not taken by the guest: beyond it a writer waits. */
const MAX_WAITING_INPUT_BYTES = 256 * 1024;
/** What waits is held message by message, and one may be a single key. */
const HELD_MESSAGE_BYTES = 64;

export class PipedProgram extends GuestProgram implements PipedProcess {
  #waitingInputBytes = 0;

  async write(bytes: Uint8Array): Promise<void> {
    const heldBytes = bytes.length + HELD_MESSAGE_BYTES;
    this.#waitingInputBytes += heldBytes;
    const written = this.channel?.writeStdin(bytes).then(() => {
      this.#waitingInputBytes -= heldBytes;
    });
    // Not waited for as long as there is room: a signal has to pass a program that does not read.
    if (this.#waitingInputBytes > MAX_WAITING_INPUT_BYTES) await written;
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
}
