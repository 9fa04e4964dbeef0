/**
 * Writes to the stdin of one execution, in order and bounded: a program that does not read holds back only these. What it
 * reads is always a beginning of what was sent: after a write that found no room none is taken, its end neither.
 */
import { failure, type Outcome } from '../../shared/errors.ts';
import { STDIN_WINDOW_BYTES } from '../../shared/limits.ts';
import type { RunningExecution } from '../sandbox/port.ts';

export class StdinQueue {
  readonly #running: RunningExecution;
  readonly #onTaken: (totalBytes: number) => void;
  #writes: Promise<unknown> = Promise.resolve();
  #waitingBytes = 0;
  #takenBytes = 0;
  #hasHole = false;

  /** `onTaken` is given how many bytes have left the queue since the start: the sender may send as many more. */
  constructor(running: RunningExecution, onTaken: (totalBytes: number) => void) {
    this.#running = running;
    this.#onTaken = onTaken;
  }

  /** No bytes are the end of stdin. Settles when they are with the program, or cannot be. */
  async write(bytes: Uint8Array): Promise<Outcome<null>> {
    this.#hasHole ||= this.#waitingBytes + bytes.length > STDIN_WINDOW_BYTES;
    if (this.#hasHole) return failure('overloaded', 'the program does not read its stdin');
    this.#waitingBytes += bytes.length;
    const written = this.#writes.then(() => this.#running.writeStdin(bytes, bytes.length === 0));
    this.#writes = written.catch(() => {});
    try {
      return await written;
    } catch {
      return failure('execution_not_running', 'stdin is closed');
    } finally {
      this.#waitingBytes -= bytes.length;
      this.#takenBytes += bytes.length;
      if (bytes.length > 0) this.#onTaken(this.#takenBytes);
    }
  }
}
