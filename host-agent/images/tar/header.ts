/** One header block of a tar archive: ustar, GNU, and what came before them. */
import { ImageRefusal } from '../refusal.ts';

export const BLOCK_BYTES = 512;

export interface TarHeader {
  name: Buffer;
  link: Buffer;
  /** The byte of the type flag as a character; NUL is told as `0`. */
  type: string;
  mode: number;
  size: number;
  mtimeS: number;
}

const CHECKSUM_AT = 148;
const CHECKSUM_BYTES = 8;
const SPACE = 0x20;
const BASE_256 = 0x80;

export function readHeader(block: Buffer): TarHeader {
  if (block.length !== BLOCK_BYTES || !hasRightChecksum(block)) {
    throw new ImageRefusal('a layer is not a tar archive, or a damaged one');
  }
  const isUstar = block.toString('latin1', 257, 263) === 'ustar\0';
  const prefix = isUstar ? text(block, 345, 155) : Buffer.alloc(0);
  const shortName = text(block, 0, 100);
  const name = prefix.length > 0 ? Buffer.concat([prefix, Buffer.from('/'), shortName]) : shortName;
  const flag = block[156] ?? 0;
  return {
    name,
    link: text(block, 157, 100),
    type: flag === 0 ? '0' : String.fromCharCode(flag),
    mode: number(block, 100, 8),
    size: number(block, 124, 12),
    mtimeS: number(block, 136, 12),
  };
}

export function isEmptyBlock(block: Buffer): boolean {
  return block.every((byte) => byte === 0);
}

/** The sum takes its own field as spaces. */
function hasRightChecksum(block: Buffer): boolean {
  let sum = 0;
  for (const [at, byte] of block.entries()) {
    const isOwnField = at >= CHECKSUM_AT && at < CHECKSUM_AT + CHECKSUM_BYTES;
    sum += isOwnField ? SPACE : byte;
  }
  return sum === number(block, CHECKSUM_AT, CHECKSUM_BYTES);
}

function text(block: Buffer, start: number, length: number): Buffer {
  const field = block.subarray(start, start + length);
  const end = field.indexOf(0);
  return Buffer.from(end < 0 ? field : field.subarray(0, end));
}

/** Octal digits, or, where the first bit is set, a big-endian number. */
function number(block: Buffer, start: number, length: number): number {
  const field = block.subarray(start, start + length);
  const first = field[0] ?? 0;
  if ((first & BASE_256) === 0) {
    const digits = field
      .toString('latin1')
      .replace(/[\0 ]+$/, '')
      .trimStart();
    if (digits === '') return 0;
    // What follows a NUL inside the field is not part of the number.
    const [octal = ''] = digits.split(/[\0 ]/);
    if (!/^[0-7]+$/.test(octal)) throw new ImageRefusal('a layer has a header with a wrong number');
    return Number.parseInt(octal, 8);
  }
  // A negative time; sizes and modes have none.
  if (first === 0xff) return 0;
  let value = first & 0x7f;
  for (const byte of field.subarray(1)) value = value * 256 + byte;
  if (!Number.isSafeInteger(value))
    throw new ImageRefusal('a layer has a header with a number beyond bounds');
  return value;
}
