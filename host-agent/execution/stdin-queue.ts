/**
 * Writes to the stdin of one execution, in order and bounded: a program that does not read holds back only these. What it
 * reads is always a beginning of what was sent: after a write that found no room none is taken, its end neither.
 */
import { failure, type Outcome } from '../../shared/errors.ts';
import { STDIN_WINDOW_BYTES } from '../../shared/limits.ts';
import type { RunningExecution } from '../sandbox/port.ts';
import type { CarriedStdin } from './carried.ts';

export class StdinQueue {
  readonly #running: Pick<RunningExecution, 'writeStdin'>;
  readonly #onTaken: (totalBytes: number) => void;
  #writes: Promise<unknown> = Promise.resolve();
  #waitingBytes = 0;
  #takenBytes = 0;
  #hasHole = false;
  /** Not settled yet, in order. */
  readonly #pending: Uint8Array[] = [];

  /** `onTaken` is given how many bytes have left the queue since the start: the sender may send as many more. */
  constructor(running: Pick<RunningExecution, 'writeStdin'>, onTaken: (totalBytes: number) => void) {
    this.#running = running;
    this.#onTaken = onTaken;
  }

  /** No bytes are the end of stdin. Settles when they are with the program, or cannot be. */
  async write(bytes: Uint8Array): Promise<Outcome<null>> {
    this.#hasHole ||= this.#waitingBytes + bytes.length > STDIN_WINDOW_BYTES;
    if (this.#hasHole) return failure('overloaded', 'the program does not read its stdin');
    this.#waitingBytes += bytes.length;
    this.#pending.push(bytes);
    const written = this.#writes.then(() => this.#running.writeStdin(bytes, bytes.length === 0));
    this.#writes = written.catch(() => {});
    try {
      return await written;
    } catch {
      return failure('execution_not_running', 'stdin is closed');
    } finally {
      this.#pending.shift();
      this.#waitingBytes -= bytes.length;
      this.#takenBytes += bytes.length;
      if (bytes.length > 0) this.#onTaken(this.#takenBytes);
    }
  }

  /** How it stands, for another host. `firstIsCarried`: the rest of the oldest write goes along with the program. */
  carry(firstIsCarried: boolean): CarriedStdin {
    const [first, ...rest] = this.#pending;
    const isCarried = firstIsCarried && first !== undefined;
    return {
      taken_bytes: this.#takenBytes + (isCarried ? first.length : 0),
      has_hole: this.#hasHole,
      waiting: (isCarried ? rest : this.#pending).map((bytes) => Buffer.from(bytes).toString('base64')),
    };
  }

  /** Before anything is written. */
  goOnFrom({ taken_bytes, has_hole, waiting }: CarriedStdin): void {
    this.#takenBytes = taken_bytes;
    for (const bytes of waiting) void this.write(Buffer.from(bytes, 'base64'));
    this.#hasHole = has_hole;
  }
}
