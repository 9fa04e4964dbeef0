/** The bytes of one upload as they come: at most a window of them waits, and what was taken is told to the edge. */
import { createHash, type Hash } from 'node:crypto';

export class Incoming {
  readonly #hash: Hash = createHash('sha256');
  readonly #signal: AbortSignal;
  readonly #windowBytes: number;
  readonly #tell: (bytes: number) => void;
  readonly #waiting: Uint8Array[] = [];
  #receivedBytes = 0;
  #takenBytes = 0;
  #toldBytes = 0;
  #digest: string | undefined;
  #isWhole = false;
  #wake: (() => void) | undefined;

  constructor(signal: AbortSignal, windowBytes: number, tell: (bytes: number) => void) {
    this.#signal = signal;
    this.#windowBytes = windowBytes;
    this.#tell = tell;
    signal.addEventListener('abort', () => this.#wake?.(), { once: true });
  }

  get bytes(): number {
    return this.#receivedBytes;
  }

  /** Of everything that came; asked when it is whole. */
  get sha256(): string {
    this.#digest ??= this.#hash.digest('hex');
    return this.#digest;
  }

  /** False where the edge breaks the rules of the window or leaves a hole. */
  push(offset: number, bytes: Uint8Array): boolean {
    const waiting = this.#receivedBytes - this.#takenBytes;
    if (this.#isWhole || offset !== this.#receivedBytes || waiting + bytes.length > this.#windowBytes)
      return false;
    this.#receivedBytes += bytes.length;
    this.#waiting.push(bytes);
    this.#wake?.();
    return true;
  }

  end(bytes: number): boolean {
    if (bytes !== this.#receivedBytes) return false;
    this.#isWhole = true;
    this.#wake?.();
    return true;
  }

  /** Throws when the rest will not come, or hashes to something else than `expected`. */
  async *content(expected: string | null): AsyncIterable<Uint8Array> {
    for (;;) {
      if (this.#signal.aborted) throw new Error('the upload was cut');
      const bytes = this.#waiting.shift();
      if (bytes !== undefined) {
        this.#hash.update(bytes);
        yield bytes;
        this.#took(bytes.length);
      } else if (this.#isWhole) {
        if (expected !== null && expected !== this.sha256) throw new DigestMismatch(this.sha256);
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        this.#wake = undefined;
      }
    }
  }

  #took(bytes: number): void {
    this.#takenBytes += bytes;
    // Told in steps: each is a frame.
    if (this.#takenBytes - this.#toldBytes < this.#windowBytes / 4) return;
    this.#toldBytes = this.#takenBytes;
    this.#tell(this.#takenBytes);
  }
}

export class DigestMismatch extends Error {
  override name = 'DigestMismatch';

  constructor(sha256: string) {
    super(`the bytes hash to ${sha256}`);
  }
}
