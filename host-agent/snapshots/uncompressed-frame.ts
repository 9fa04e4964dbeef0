/**
 * A frame of zstd (RFC 8878) that holds bytes as they are: what reads the one reads the other, and nothing is searched for
 * what is not there. The bytes are not copied.
 */
const MAGIC = 0xfd2fb528;
/** One segment, whose size is in the next four bytes. */
const DESCRIPTOR = 0xa0;
const HEADER_BYTES = 9;
const BLOCK_HEADER_BYTES = 3;
const MAX_BLOCK_BYTES = 128 * 1024;

/** The frame, in parts. */
export function uncompressedFrame(bytes: Uint8Array): Uint8Array[] {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32LE(MAGIC);
  header.writeUInt8(DESCRIPTOR, 4);
  header.writeUInt32LE(bytes.length, 5);
  const parts: Uint8Array[] = [header];
  let offset = 0;
  do {
    const block = bytes.subarray(offset, offset + MAX_BLOCK_BYTES);
    offset += block.length;
    const isLast = offset >= bytes.length;
    const blockHeader = Buffer.alloc(BLOCK_HEADER_BYTES);
    blockHeader.writeUIntLE((block.length << 3) | (isLast ? 1 : 0), 0, BLOCK_HEADER_BYTES);
    parts.push(blockHeader, block);
  } while (offset < bytes.length);
  return parts;
}
