/** Reads a tar archive as it streams by: every entry in its order, with its bytes, and nothing kept. */
import { ImageRefusal } from '../refusal.ts';
import { BLOCK_BYTES, isEmptyBlock, readHeader, type TarHeader } from './header.ts';
import { type PaxRecords, paxNumber, readPaxRecords } from './pax.ts';

export interface TarEntry {
  name: string;
  /** Of a link. */
  target: string;
  type: 'file' | 'hard link' | 'symbolic link' | 'device' | 'directory' | 'pipe';
  mode: number;
  /** Of a file; nothing else has bytes. */
  sizeBytes: number;
  mtimeS: number;
}

export interface TarVisitor {
  /** Called for each header, those of extensions too. */
  onHeader(): void;
  /** Gives a receiver of the entry's bytes, or undefined to pass over them. */
  onEntry(entry: TarEntry): TarReceiver | undefined;
}

export interface TarReceiver {
  write(bytes: Buffer): void;
  end(): void;
}

/** Of an extended header or a long name. */
const MAX_EXTENSION_BYTES = 1024 * 1024;
const TYPES = new Map<string, TarEntry['type']>([
  ['0', 'file'],
  ['7', 'file'],
  ['1', 'hard link'],
  ['2', 'symbolic link'],
  ['3', 'device'],
  ['4', 'device'],
  ['5', 'directory'],
  ['6', 'pipe'],
]);
const DECODER = new TextDecoder('utf-8', { fatal: true });

/** What came before an entry and is about it. */
interface Extensions {
  pax: PaxRecords;
  longName?: Buffer;
  longLink?: Buffer;
}

export async function readTar(stream: AsyncIterable<Buffer>, visitor: TarVisitor): Promise<void> {
  const source = new ByteSource(stream);
  let extensions: Extensions = { pax: new Map() };
  for (;;) {
    const block = await source.take(BLOCK_BYTES);
    // An archive that ends without its two empty blocks is common enough.
    if (block === undefined || isEmptyBlock(block)) break;
    visitor.onHeader();
    const header = readHeader(block);
    const extended = await readExtension(source, header, extensions);
    if (extended !== undefined) {
      extensions = extended;
      continue;
    }
    const entry = entryOf(header, extensions);
    extensions = { pax: new Map() };
    const receiver = visitor.onEntry(entry);
    await source.pass(entry.sizeBytes, (bytes) => receiver?.write(bytes));
    receiver?.end();
    await source.pass(paddingOf(entry.sizeBytes), () => undefined);
  }
  // Whoever hashes or counts the stream sees all of it.
  await source.drain();
}

/** Undefined where the header is that of an entry. */
async function readExtension(
  source: ByteSource,
  header: TarHeader,
  before: Extensions,
): Promise<Extensions | undefined> {
  if (!'xgLK'.includes(header.type)) return undefined;
  if (header.size > MAX_EXTENSION_BYTES) throw new ImageRefusal('a layer has an oversized extended header');
  const bytes = await source.take(header.size);
  if (bytes === undefined) throw truncated();
  await source.pass(paddingOf(header.size), () => undefined);
  switch (header.type) {
    case 'x':
      return { ...before, pax: readPaxRecords(bytes) };
    case 'L':
      return { ...before, longName: untilNul(bytes) };
    case 'K':
      return { ...before, longLink: untilNul(bytes) };
    default:
      // Defaults for all entries that follow: comments in practice, and nothing here heeds them.
      return before;
  }
}

function entryOf(header: TarHeader, { pax, longName, longLink }: Extensions): TarEntry {
  const type = TYPES.get(header.type);
  const isSparse = [...pax.keys()].some((key) => key.startsWith('GNU.sparse.'));
  if (type === undefined || isSparse) {
    throw new ImageRefusal(`a layer has an entry that is ${isSparse ? 'sparse' : 'of an unknown type'}`);
  }
  const name = decode(pax.get('path') ?? longName ?? header.name);
  const size = paxNumber(pax, 'size') ?? header.size;
  if (size < 0) throw new ImageRefusal('a layer has an entry of negative size');
  return {
    name,
    target: decode(pax.get('linkpath') ?? longLink ?? header.link),
    // Before there was a type for them, folders were files whose names end so.
    type: type === 'file' && name.endsWith('/') ? 'directory' : type,
    mode: header.mode,
    sizeBytes: type === 'file' ? size : 0,
    mtimeS: paxNumber(pax, 'mtime') ?? header.mtimeS,
  };
}

function decode(bytes: Buffer): string {
  if (bytes.includes(0)) throw new ImageRefusal('a layer has a name with a NUL in it');
  try {
    return DECODER.decode(bytes);
  } catch {
    throw new ImageRefusal(
      `a layer has a name that is not UTF-8: ${JSON.stringify(bytes.toString('latin1'))}`,
    );
  }
}

function untilNul(bytes: Buffer): Buffer {
  const end = bytes.indexOf(0);
  return end < 0 ? bytes : bytes.subarray(0, end);
}

function paddingOf(size: number): number {
  return (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;
}

function truncated(): ImageRefusal {
  return new ImageRefusal('a layer ends in the middle of an entry');
}

class ByteSource {
  readonly #chunks: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(stream: AsyncIterable<Buffer>) {
    this.#chunks = stream[Symbol.asyncIterator]();
  }

  /** Exactly so many bytes; undefined at the end of the stream. */
  async take(count: number): Promise<Buffer | undefined> {
    const parts: Buffer[] = [];
    let missing = count;
    while (missing > 0) {
      const part = await this.#next(missing);
      if (part === undefined) {
        if (parts.length === 0) return undefined;
        throw truncated();
      }
      parts.push(part);
      missing -= part.length;
    }
    return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
  }

  async pass(count: number, to: (bytes: Buffer) => void): Promise<void> {
    let missing = count;
    while (missing > 0) {
      const part = await this.#next(missing);
      if (part === undefined) throw truncated();
      missing -= part.length;
      to(part);
    }
  }

  async drain(): Promise<void> {
    while ((await this.#next(Number.MAX_SAFE_INTEGER)) !== undefined);
  }

  async #next(most: number): Promise<Buffer | undefined> {
    while (this.#rest.length === 0) {
      const { value, done } = await this.#chunks.next();
      if (done === true) return undefined;
      this.#rest = value;
    }
    const part = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(part.length);
    return part;
  }
}
