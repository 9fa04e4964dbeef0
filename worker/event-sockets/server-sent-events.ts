/** Reads a stream of server-sent events of our own making back into events. */
export interface ServerSentEvent {
  id: string;
  /** JSON text; null for a block that only names the place or keeps the stream alive. */
  data: string | null;
}

export class ServerSentEventReader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  #text = '';
  #id = '';

  constructor(body: ReadableStream<Uint8Array>) {
    this.#reader = body.getReader();
  }

  /** Undefined at the end of the stream; throws where it broke. */
  async next(): Promise<ServerSentEvent | undefined> {
    for (;;) {
      const at = this.#text.indexOf('\n\n');
      if (at >= 0) {
        const block = this.#text.slice(0, at);
        this.#text = this.#text.slice(at + 2);
        return this.#event(block);
      }
      const { value, done } = await this.#reader.read();
      if (done) return undefined;
      this.#text += this.#decoder.decode(value, { stream: true });
    }
  }

  cancel(): void {
    this.#reader.cancel().catch(() => undefined);
  }

  #event(block: string): ServerSentEvent {
    let data: string | null = null;
    for (const line of block.split('\n')) {
      if (line.startsWith('id: ')) this.#id = line.slice(4);
      else if (line.startsWith('data: ')) data = (data === null ? '' : `${data}\n`) + line.slice(6);
    }
    return { id: this.#id, data };
  }
}
