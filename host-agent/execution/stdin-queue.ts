/** Writes to the stdin of one execution, in order and bounded: a program that does not read holds back only these. */
import { failure, type Outcome } from '../../shared/errors.ts';
import { MAX_STDIN_BYTES } from '../../shared/limits.ts';
import type { RunningExecution } from '../sandbox/port.ts';

const MAX_WAITING_BYTES = 2 * MAX_STDIN_BYTES;

export class StdinQueue {
  readonly #running: RunningExecution;
  #writes: Promise<unknown> = Promise.resolve();
  #waitingBytes = 0;

  constructor(running: RunningExecution) {
    this.#running = running;
  }

  /** No bytes are the end of stdin. Settles when they are with the program, or cannot be. */
  async write(bytes: Uint8Array): Promise<Outcome<null>> {
    if (this.#waitingBytes + bytes.length > MAX_WAITING_BYTES) {
      return failure('overloaded', 'the program does not read its stdin');
    }
    this.#waitingBytes += bytes.length;
    const written = this.#writes.then(() => this.#running.writeStdin(bytes, bytes.length === 0));
    this.#writes = written.catch(() => {});
    try {
      return await written;
    } catch {
      return failure('execution_not_running', 'stdin is closed');
    } finally {
      this.#waitingBytes -= bytes.length;
    }
  }
}
