/** The entries of a tar archive as they come: names and sizes also where they stand in extended headers. */
import type { ByteReader } from './byte-reader.ts';

export interface TarEntry {
  name: string;
  type: 'file' | 'directory' | 'other';
  size: number;
  modifiedS: number;
}

const BLOCK_BYTES = 512;
const MAX_EXTENDED_BYTES = 64 * 1024;
const PAX = 'x';
const GNU_LONG_NAME = 'L';
const decoder = new TextDecoder();

/** After each entry its bytes are the reader's: whoever takes the entry reads all `size` of them, and no more. */
export async function* tarEntries(reader: ByteReader): AsyncGenerator<TarEntry> {
  let extended: { name?: string; size?: number } = {};
  for (;;) {
    const header = await reader.exactly(BLOCK_BYTES);
    // Two empty blocks end an archive; whatever follows is filling.
    if (header === undefined || header.every((byte) => byte === 0)) return;
    const ownSize = numberAt(header, 124, 12);
    const kind = String.fromCharCode(header[156] ?? 0);
    if (kind === PAX || kind === GNU_LONG_NAME) {
      const content = await extendedContent(reader, ownSize);
      const name = kind === PAX ? {} : { name: decoder.decode(content).replace(/\0.*$/s, '') };
      extended = { ...extended, ...name, ...(kind === PAX ? paxOf(content) : {}) };
      continue;
    }
    const size = extended.size ?? ownSize;
    const prefix = textAt(header, 345, 155);
    const name = extended.name ?? `${prefix === '' ? '' : `${prefix}/`}${textAt(header, 0, 100)}`;
    extended = {};
    yield { name, type: typeOf(kind), size, modifiedS: numberAt(header, 136, 12) };
    await skip(reader, paddingOf(size));
  }
}

function typeOf(kind: string): TarEntry['type'] {
  if (kind === '5') return 'directory';
  return kind === '0' || kind === '\0' || kind === '7' ? 'file' : 'other';
}

export async function skip(reader: ByteReader, count: number): Promise<void> {
  for (let left = count; left > 0; ) {
    const piece = await reader.some(left);
    if (piece === undefined) throw new Error('the archive ended before its end');
    left -= piece.length;
  }
}

function paddingOf(size: number): number {
  return (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;
}

function textAt(header: Uint8Array, from: number, length: number): string {
  const field = header.subarray(from, from + length);
  const end = field.indexOf(0);
  return decoder.decode(end < 0 ? field : field.subarray(0, end));
}

/** Octal digits, or for large numbers the bytes themselves behind a set bit. */
function numberAt(header: Uint8Array, from: number, length: number): number {
  const first = header[from] ?? 0;
  if ((first & 0x80) === 0) return Number.parseInt(textAt(header, from, length).trim() || '0', 8);
  return header.subarray(from + 1, from + length).reduce((number, byte) => number * 256 + byte, 0);
}

async function extendedContent(reader: ByteReader, size: number): Promise<Uint8Array> {
  const content = size > MAX_EXTENDED_BYTES ? undefined : await reader.exactly(size);
  if (content === undefined) throw new Error('the archive has a header that is too large or cut');
  await skip(reader, paddingOf(size));
  return content;
}

/** Records of the form `length key=value` and a line break; the length counts bytes, its own digits too. */
function paxOf(content: Uint8Array): { name?: string; size?: number } {
  const found: { name?: string; size?: number } = {};
  for (let at = 0; at < content.length; ) {
    const length = Number.parseInt(decoder.decode(content.subarray(at, at + 20)), 10);
    if (!(length > 0)) return found;
    const record = decoder.decode(content.subarray(at, at + length - 1));
    const [, key, value = ''] = /^\d+ ([^=]+)=(.*)$/s.exec(record) ?? [];
    if (key === 'path') found.name = value;
    if (key === 'size') found.size = Number(value);
    at += length;
  }
  return found;
}
