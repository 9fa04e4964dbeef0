/** What is said on the keeper's socket, as protocol.h has it. */
const ORDER_BYTES = 80;
const NAME_OFFSET = 2;
const NAME_BYTES = ORDER_BYTES - NAME_OFFSET;

export const AGENT_ORDER = order('a', 0, '');

export function joinOrder(name: string, stream: number): Buffer {
  return order('j', stream, name);
}

function order(what: 'a' | 'j', stream: number, name: string): Buffer {
  const bytes = Buffer.alloc(ORDER_BYTES);
  bytes.write(what, 'latin1');
  bytes.writeUInt8(stream, 1);
  if (Buffer.byteLength(name) >= NAME_BYTES) throw new RangeError('the name is too long for an order');
  bytes.write(name, NAME_OFFSET);
  return bytes;
}

/** Reads names of a fixed size until an empty one. */
export class NameReader {
  readonly #names: string[] = [];
  #rest: Buffer = Buffer.alloc(0);

  /** Undefined as long as more are to come. */
  read(bytes: Buffer): readonly string[] | undefined {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    while (this.#rest.length >= NAME_BYTES) {
      const field = this.#rest.subarray(0, NAME_BYTES);
      this.#rest = this.#rest.subarray(NAME_BYTES);
      const name = field.subarray(0, field.indexOf(0)).toString('latin1');
      if (name === '') return this.#names;
      this.#names.push(name);
    }
    return undefined;
  }
}
