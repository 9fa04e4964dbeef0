/** Reads a stream in pieces of the sizes that a format asks for. */
export class ByteReader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #held: Uint8Array = new Uint8Array(0);

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = stream.getReader();
  }

  /** Exactly so many bytes, or undefined where the stream ends before. For headers only: it is held in memory. */
  async exactly(count: number): Promise<Uint8Array | undefined> {
    const whole = new Uint8Array(count);
    let at = 0;
    while (at < count) {
      const piece = await this.some(count - at);
      if (piece === undefined) return undefined;
      whole.set(piece, at);
      at += piece.length;
    }
    return whole;
  }

  /** At least one byte and at most so many, as they come; undefined at the end. */
  async some(atMost: number): Promise<Uint8Array | undefined> {
    while (this.#held.length === 0) {
      const { done, value } = await this.#reader.read();
      if (done) return undefined;
      this.#held = value;
    }
    const piece = this.#held.subarray(0, atMost);
    this.#held = this.#held.subarray(piece.length);
    return piece;
  }

  async cancel(): Promise<void> {
    await this.#reader.cancel();
  }
}
