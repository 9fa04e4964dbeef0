/**
 * One journal record on disk: u32 length and u32 CRC-32 of the body, then the body: u32 length of a JSON header, the
 * header, and bytes that belong to it. All numbers are big-endian.
 */
import { crc32 } from 'node:zlib';

/** A length is never zero. */
export const LENGTH_BYTES = 4;
const PREFIX_BYTES = 8;
const HEADER_LENGTH_BYTES = 4;
/** Above everything that is ever written; a longer length is a torn or foreign one. */
export const MAX_RECORD_BYTES = 64 * 1024 * 1024;

export interface JournalRecord {
  header: unknown;
  payload: Uint8Array;
}

export function encodeRecord(header: object, payloads: readonly Uint8Array[] = []): Buffer {
  const headerBytes = Buffer.from(JSON.stringify(header), 'utf8');
  const headerLength = Buffer.alloc(HEADER_LENGTH_BYTES);
  headerLength.writeUInt32BE(headerBytes.length);
  const body = Buffer.concat([headerLength, headerBytes, ...payloads]);
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(body.length, 0);
  prefix.writeUInt32BE(crc32(body), 4);
  return Buffer.concat([prefix, body]);
}

export interface DecodedRecord {
  record: JournalRecord;
  /** Where the next record begins. */
  end: number;
}

/** The record at `offset`, or `undefined` where none begins that is whole. */
export function decodeRecord(bytes: Buffer, offset: number): DecodedRecord | undefined {
  if (bytes.length - offset < PREFIX_BYTES) return undefined;
  const bodyLength = bytes.readUInt32BE(offset);
  const bodyStart = offset + PREFIX_BYTES;
  const end = bodyStart + bodyLength;
  if (bodyLength < HEADER_LENGTH_BYTES || bodyLength > MAX_RECORD_BYTES || end > bytes.length)
    return undefined;
  const body = bytes.subarray(bodyStart, end);
  if (crc32(body) !== bytes.readUInt32BE(offset + 4)) return undefined;
  const headerEnd = HEADER_LENGTH_BYTES + body.readUInt32BE(0);
  if (headerEnd > body.length) return undefined;
  try {
    const header: unknown = JSON.parse(body.toString('utf8', HEADER_LENGTH_BYTES, headerEnd));
    return { record: { header, payload: body.subarray(headerEnd) }, end };
  } catch {
    return undefined;
  }
}
