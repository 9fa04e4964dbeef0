/** A tar archive as a zip archive, entry by entry as it comes. Nothing is compressed; links are left out, as a zip has none. */
import { ByteReader } from './byte-reader.ts';
import { crc32 } from './crc32.ts';
import { skip, type TarEntry, tarEntries } from './tar-entries.ts';

interface Written {
  name: Uint8Array;
  crc: number;
  size: number;
  offset: number;
  time: number;
  isDirectory: boolean;
}

const LOCAL_HEADER = 0x04034b50;
const DATA_DESCRIPTOR = 0x08074b50;
const CENTRAL_HEADER = 0x02014b50;
const END = 0x06054b50;
const VERSION = 20;
/** Sums and sizes follow the data; names are UTF-8. */
const FLAGS = 0x0808;
const UNIX_VERSION = (3 << 8) | VERSION;
const FILE_MODE = 0o100644 << 16;
const DIRECTORY_MODE = (0o040755 << 16) | 0x10;
const PIECE_BYTES = 128 * 1024;
/** What the numbers of the format hold without its extension. */
const MAX_BYTES = 0xffffffff;
const MAX_ENTRIES = 0xffff;

export function zipOfTar(tar: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  const reader = new ByteReader(tar);
  const pieces = zipPieces(reader);
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await pieces.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
    cancel: () => reader.cancel(),
  });
}

async function* zipPieces(reader: ByteReader): AsyncGenerator<Uint8Array> {
  const written: Written[] = [];
  let offset = 0;
  const counted = (piece: Uint8Array) => {
    offset += piece.length;
    if (offset > MAX_BYTES) throw new Error('the workspace is too large for a zip archive');
    return piece;
  };
  for await (const entry of tarEntries(reader)) {
    const name = nameOf(entry);
    if (name === undefined || written.length === MAX_ENTRIES) {
      await skip(reader, entry.size);
      continue;
    }
    const isDirectory = entry.type === 'directory';
    const one: Written = { name, crc: 0, size: 0, offset, time: dosTime(entry.modifiedS), isDirectory };
    yield counted(localHeader(one));
    while (one.size < entry.size) {
      const piece = await reader.some(Math.min(PIECE_BYTES, entry.size - one.size));
      if (piece === undefined) throw new Error('the archive ended before its end');
      one.crc = crc32(piece, one.crc);
      one.size += piece.length;
      // The reader goes on in the same memory.
      yield counted(piece.slice());
    }
    yield counted(fields([DATA_DESCRIPTOR, 4], [one.crc, 4], [one.size, 4], [one.size, 4]));
    written.push(one);
  }
  const begin = offset;
  for (const one of written) yield counted(centralHeader(one));
  yield fields(
    [END, 4],
    [0, 4],
    [written.length, 2],
    [written.length, 2],
    [offset - begin, 4],
    [begin, 4],
    [0, 2],
  );
}

/** Below the folder that was asked for; of that folder itself there is no entry. */
function nameOf({ name, type }: TarEntry): Uint8Array | undefined {
  if (type === 'other') return undefined;
  const parts = name.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.length === 0 || parts.includes('..')) return undefined;
  return new TextEncoder().encode(`${parts.join('/')}${type === 'directory' ? '/' : ''}`);
}

function localHeader({ name, time }: Written): Uint8Array {
  const head = fields(
    [LOCAL_HEADER, 4],
    [VERSION, 2],
    [FLAGS, 2],
    [0, 2],
    [time, 4],
    [0, 4],
    [0, 4],
    [0, 4],
    [name.length, 2],
    [0, 2],
  );
  return joined(head, name);
}

function centralHeader({ name, crc, size, offset, time, isDirectory }: Written): Uint8Array {
  const head = fields(
    [CENTRAL_HEADER, 4],
    [UNIX_VERSION, 2],
    [VERSION, 2],
    [FLAGS, 2],
    [0, 2],
    [time, 4],
    [crc, 4],
    [size, 4],
    [size, 4],
    [name.length, 2],
    [0, 4],
    [0, 4],
    [isDirectory ? DIRECTORY_MODE : FILE_MODE, 4],
    [offset, 4],
  );
  return joined(head, name);
}

/** Numbers of two or four bytes, the lowest byte first. */
function fields(...numbers: readonly (readonly [number, 2 | 4])[]): Uint8Array {
  const bytes = new Uint8Array(numbers.reduce((sum, [, width]) => sum + width, 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const [number, width] of numbers) {
    if (width === 2) view.setUint16(at, number, true);
    else view.setUint32(at, number >>> 0, true);
    at += width;
  }
  return bytes;
}

function joined(head: Uint8Array, tail: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(head.length + tail.length);
  bytes.set(head);
  bytes.set(tail, head.length);
  return bytes;
}

/** Time in the lower half, date in the upper, in steps of two seconds from 1980 on. */
function dosTime(secondsSinceEpoch: number): number {
  const at = new Date(secondsSinceEpoch * 1_000);
  const year = at.getUTCFullYear() - 1980;
  if (!(year >= 0 && year < 128)) return (1 << 21) | (1 << 16);
  const date = (year << 9) | ((at.getUTCMonth() + 1) << 5) | at.getUTCDate();
  const time = (at.getUTCHours() << 11) | (at.getUTCMinutes() << 5) | (at.getUTCSeconds() >> 1);
  return (date << 16) | time;
}
