/** A child's log file with a bound: past its size it becomes `.1` and starts anew. */
import { closeSync, copyFileSync, fstatSync, mkdirSync, openSync, readSync, truncateSync } from 'node:fs';
import { dirname } from 'node:path';

const MAX_LOG_BYTES = 16 * 1024 * 1024;
const TAIL_BYTES = 4096;
const LOOK_INTERVAL_MS = 15_000;

export class LogFile {
  readonly path: string;
  /** For a child's stdout and stderr. Opened for appending, so that truncation moves the child's writes too. */
  readonly descriptor: number;
  readonly #timer: NodeJS.Timeout;

  constructor(path: string) {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    this.path = path;
    this.descriptor = openSync(path, 'a+', 0o600);
    this.#timer = setInterval(() => this.#bound(), LOOK_INTERVAL_MS);
    this.#timer.unref();
  }

  get sizeBytes(): number {
    return fstatSync(this.descriptor).size;
  }

  /** The last line written since `fromBytes`, for a failure message. */
  lastLine(fromBytes: number): string {
    const size = this.sizeBytes;
    const start = Math.max(fromBytes, size - TAIL_BYTES);
    const buffer = Buffer.alloc(Math.max(0, size - start));
    const read = readSync(this.descriptor, buffer, 0, buffer.length, start);
    const lines = buffer.toString('utf8', 0, read).trim().split('\n');
    return lines.at(-1) ?? '';
  }

  close(): void {
    clearInterval(this.#timer);
    closeSync(this.descriptor);
  }

  #bound(): void {
    if (this.sizeBytes <= MAX_LOG_BYTES) return;
    copyFileSync(this.path, `${this.path}.1`);
    truncateSync(this.path, 0);
  }
}
