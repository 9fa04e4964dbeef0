/** Keeps the last bytes of a stream. Memory is taken as bytes come, up to the capacity. */

export class TailRing {
  readonly #capacity: number;
  #buffer = Buffer.alloc(0);
  #position = 0;
  #totalBytes = 0;

  constructor(capacityBytes: number) {
    this.#capacity = capacityBytes;
  }

  push(bytes: Uint8Array): void {
    this.#totalBytes += bytes.length;
    const kept = bytes.subarray(Math.max(0, bytes.length - this.#capacity));
    this.#grow(Math.min(this.#capacity, this.#totalBytes));
    const untilEnd = Math.min(kept.length, this.#buffer.length - this.#position);
    this.#buffer.set(kept.subarray(0, untilEnd), this.#position);
    this.#buffer.set(kept.subarray(untilEnd), 0);
    this.#position = (this.#position + kept.length) % this.#capacity;
  }

  /** The last bytes, oldest first. */
  bytes(): Buffer {
    if (this.#totalBytes <= this.#capacity) return this.#buffer.subarray(0, this.#totalBytes);
    return Buffer.concat([this.#buffer.subarray(this.#position), this.#buffer.subarray(0, this.#position)]);
  }

  /** Until the ring is full its content begins at 0, so growing keeps every position. */
  #grow(neededBytes: number): void {
    if (this.#buffer.length >= neededBytes) return;
    const size = Math.min(this.#capacity, Math.max(neededBytes, this.#buffer.length * 2, 16_384));
    const grown = Buffer.alloc(size);
    this.#buffer.copy(grown);
    this.#buffer = grown;
  }
}
