/** The name in a TLS client's first message: what it believes the other end of its tunnel to be. */

export type TlsGreeting =
  /** More bytes are needed. */
  | { readonly kind: 'incomplete' }
  /** Another protocol. */
  | { readonly kind: 'other' }
  | { readonly kind: 'malformed' }
  | { readonly kind: 'tls'; readonly serverName: string | undefined };

/** Also with certificates for keys of the future in it, a greeting is far smaller. */
export const MAX_GREETING_BYTES = 32 * 1024;
const RECORD_HEAD_BYTES = 5;
const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME_EXTENSION = 0;
const HOST_NAME = 0;
const VERSION_AND_RANDOM_BYTES = 34;

const MALFORMED = { kind: 'malformed' } as const;
const INCOMPLETE = { kind: 'incomplete' } as const;

/** Reads a message from its beginning; a length beyond its end throws `RangeError`, as reads of a buffer do. */
class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  number(bytes: 1 | 2): number {
    const value = this.#bytes.readUIntBE(this.#at, bytes);
    this.#at += bytes;
    return value;
  }

  take(bytes: number): Buffer {
    if (this.#at + bytes > this.#bytes.length) throw new RangeError('beyond the end');
    this.#at += bytes;
    return this.#bytes.subarray(this.#at - bytes, this.#at);
  }

  /** A part whose length stands before it. */
  part(lengthBytes: 1 | 2): Buffer {
    return this.take(this.number(lengthBytes));
  }
}

export function readTlsGreeting(bytes: Buffer): TlsGreeting {
  if (bytes.length === 0) return INCOMPLETE;
  if (bytes[0] !== HANDSHAKE_RECORD) return { kind: 'other' };
  const handshake = handshakeBytes(bytes);
  if (handshake === undefined || (handshake.length > 0 && handshake[0] !== CLIENT_HELLO)) return MALFORMED;
  const isWhole = handshake.length >= 4 && handshake.length >= 4 + handshake.readUIntBE(1, 3);
  if (!isWhole) return bytes.length < MAX_GREETING_BYTES ? INCOMPLETE : MALFORMED;
  try {
    return { kind: 'tls', serverName: serverName(handshake.subarray(4, 4 + handshake.readUIntBE(1, 3))) };
  } catch {
    return MALFORMED;
  }
}

/** What the records carry so far: a greeting may be cut into several. Undefined where one is no record of a handshake. */
function handshakeBytes(bytes: Buffer): Buffer | undefined {
  const parts: Buffer[] = [];
  for (let at = 0; at + RECORD_HEAD_BYTES <= bytes.length; ) {
    if (bytes[at] !== HANDSHAKE_RECORD || bytes[at + 1] !== 3) return undefined;
    const end = at + RECORD_HEAD_BYTES + bytes.readUInt16BE(at + 3);
    parts.push(bytes.subarray(at + RECORD_HEAD_BYTES, end));
    if (end === at + RECORD_HEAD_BYTES) return undefined;
    at = end;
  }
  return Buffer.concat(parts);
}

function serverName(hello: Buffer): string | undefined {
  const reader = new Reader(hello);
  reader.take(VERSION_AND_RANDOM_BYTES);
  reader.part(1); // session
  reader.part(2); // ciphers
  reader.part(1); // compressions
  if (reader.isAtEnd) return undefined;
  const extensions = new Reader(reader.part(2));
  let found: string | undefined;
  while (!extensions.isAtEnd) {
    const type = extensions.number(2);
    const content = extensions.part(2);
    if (type !== SERVER_NAME_EXTENSION) continue;
    // Two of them could be read in two ways.
    if (found !== undefined) throw new RangeError('a second server name');
    const names = new Reader(new Reader(content).part(2));
    if (names.number(1) !== HOST_NAME) throw new RangeError('a server name of another kind');
    found = names.part(2).toString('latin1');
    if (!names.isAtEnd) throw new RangeError('a second server name');
  }
  return found;
}
