/**
 * A file at rest in R2: segments of one size, each sealed by itself, so that a stretch of it is read without the rest.
 * Neither way is more of it in memory than a part.
 */

import { hex } from '../../shared/digest.ts';
import { concatBytes } from '../../shared/encoding.ts';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import { logWarning, messageOf } from '../objects/log.ts';
import { ByteCutter } from './byte-cutter.ts';
import { type OpenUpload, PLACELESS_BYTES } from './open-uploads.ts';
import { openSegment, SEAL_BYTES, sealSegment } from './sealed-segment.ts';

const SEGMENT_BYTES = 1_048_576;
/** Parts of an upload have one size and are at least 5 MiB: the least, because as much of each upload is in memory. */
const SEGMENTS_PER_PART = 5;
/** A source that brings nothing for so long is given up. */
const SILENCE_MS = 30_000;
const LOOK_MS = 1_000;
/** No file takes longer to be stored, however slowly it comes. */
export const MAX_STORING_MS = 90 * 60_000;

export interface SealedPlace {
  /** Of the object in R2. */
  objectKey: string;
  key: CryptoKey;
}

export interface SealedSource {
  body: ReadableStream<Uint8Array> | null;
  maxBytes: number;
  /** Since when the file is being made. */
  begunAtMs: number;
  /** Its place in memory, where there is more of it than a little. */
  turn: OpenUpload;
}

export interface StoredFacts {
  bytes: number;
  sha256: string;
}

/** Keeps all bytes of a stream, or none of them. */
export async function storeSealed(
  bucket: R2Bucket,
  place: SealedPlace,
  source: SealedSource,
): Promise<Outcome<StoredFacts>> {
  const upload = new Upload(bucket, place);
  try {
    const stored = await pump(upload, source);
    if (!stored.ok) await upload.abort();
    return stored;
  } catch (error: unknown) {
    await upload.abort();
    if (error instanceof SourceError) return failure('transfer_failed', error.message);
    if (error instanceof NoPlaceError) return error.refused;
    logWarning('content_not_stored', { detail: messageOf(error) });
    return failure('storage_unavailable', 'the storage does not answer', { retry_after_s: 2 });
  }
}

/** The stream that was to be stored broke off, or is too slow. */
class SourceError extends Error {
  override name = 'SourceError';
}

/** There was no place for more of it. */
class NoPlaceError extends Error {
  override name = 'NoPlaceError';
  readonly refused: Failure;

  constructor(refused: Failure) {
    super(refused.detail);
    this.refused = refused;
  }
}

async function pump(
  upload: Upload,
  { body, maxBytes, begunAtMs, turn }: SealedSource,
): Promise<Outcome<StoredFacts>> {
  const reader = body?.getReader();
  const digest = new crypto.DigestStream('SHA-256');
  const digesting = digest.getWriter();
  const cutter = new ByteCutter(SEGMENT_BYTES);
  let bytes = 0;
  while (reader !== undefined) {
    const { done, value } = await readOn(reader, begunAtMs, turn);
    if (done) break;
    turn.heard();
    bytes += value.length;
    if (bytes > maxBytes) {
      await reader.cancel().catch(() => undefined);
      return failure('payload_too_large', `at most ${maxBytes} bytes`);
    }
    await digesting.write(value);
    if (cutter.heldBytes + value.length > PLACELESS_BYTES) await takePlace(turn, reader);
    for (const segment of cutter.push(value)) await upload.add(segment);
    if (upload.isBetweenParts && cutter.heldBytes <= PLACELESS_BYTES) turn.giveBackPlace();
  }
  const rest = cutter.rest();
  if (rest !== undefined) await upload.add(rest);
  await upload.complete();
  await digesting.close();
  return success({ bytes, sha256: hex(new Uint8Array(await digest.digest)) });
}

async function takePlace(turn: OpenUpload, reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  const given = await turn.takePlace();
  if (given.ok) return;
  void reader.cancel().catch(() => undefined);
  throw new NoPlaceError(given);
}

async function readOn(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  begunAtMs: number,
  turn: OpenUpload,
): Promise<ReadableStreamReadResult<Uint8Array>> {
  const sinceMs = Date.now();
  const { promise: silence, reject } = Promise.withResolvers<never>();
  const look = setInterval(() => {
    if (Date.now() - sinceMs > SILENCE_MS) {
      reject(new SourceError(`nothing came for ${SILENCE_MS / 1_000} s`));
    }
    if (turn.mustYield()) reject(new SourceError('the bytes came slowly, and others waited for the place'));
  }, LOOK_MS);
  const next = reader.read().catch(() => {
    throw new SourceError('the bytes ended before their end');
  });
  try {
    const read = await Promise.race([next, silence]);
    if (Date.now() - begunAtMs > MAX_STORING_MS) {
      throw new SourceError(`the bytes took longer than ${MAX_STORING_MS / 60_000} minutes`);
    }
    return read;
  } catch (error: unknown) {
    void reader.cancel().catch(() => undefined);
    throw error;
  } finally {
    clearInterval(look);
  }
}

/** What fits a part is put at once; beyond it an upload of several parts begins. */
class Upload {
  readonly #bucket: R2Bucket;
  readonly #place: SealedPlace;
  readonly #parts: R2UploadedPart[] = [];
  #several: R2MultipartUpload | undefined;
  #sealed: Uint8Array[] = [];
  #segments = 0;

  constructor(bucket: R2Bucket, place: SealedPlace) {
    this.#bucket = bucket;
    this.#place = place;
  }

  /** Nothing of it is in memory. */
  get isBetweenParts(): boolean {
    return this.#sealed.length === 0;
  }

  async add(segment: Uint8Array<ArrayBuffer>): Promise<void> {
    this.#sealed.push(await sealSegment(this.#place.key, placeOf(this.#segments), segment));
    this.#segments += 1;
    if (this.#sealed.length === SEGMENTS_PER_PART) await this.#sendPart();
  }

  async complete(): Promise<void> {
    if (this.#several === undefined) {
      await this.#bucket.put(this.#place.objectKey, concatBytes(this.#sealed));
      return;
    }
    if (!this.isBetweenParts) await this.#sendPart();
    await this.#several.complete(this.#parts);
  }

  async abort(): Promise<void> {
    // R2 itself lets uploads go that were neither completed nor aborted.
    await this.#several?.abort().catch(() => undefined);
  }

  async #sendPart(): Promise<void> {
    this.#several ??= await this.#bucket.createMultipartUpload(this.#place.objectKey);
    const part = concatBytes(this.#sealed);
    this.#sealed = [];
    this.#parts.push(await this.#several.uploadPart(this.#parts.length + 1, part));
  }
}

function placeOf(segment: number): string {
  return `segment ${segment}`;
}

/** A stretch of a stored file as it is read; null where the file is not there. The stream breaks where a byte was changed. */
export async function readSealed(
  bucket: R2Bucket,
  { objectKey, key }: SealedPlace,
  stretch: { offset: number; length: number; size: number },
): Promise<Outcome<ReadableStream<Uint8Array> | null>> {
  const { offset, length, size } = stretch;
  const first = Math.floor(offset / SEGMENT_BYTES);
  const end = Math.min(size, Math.ceil((offset + length) / SEGMENT_BYTES) * SEGMENT_BYTES);
  const segments = Math.ceil((end - first * SEGMENT_BYTES) / SEGMENT_BYTES);
  const range = {
    offset: first * (SEGMENT_BYTES + SEAL_BYTES),
    length: end - first * SEGMENT_BYTES + segments * SEAL_BYTES,
  };
  try {
    if (length === 0) {
      const there = await bucket.head(objectKey);
      return success(there === null ? null : new Response(new Uint8Array(0)).body);
    }
    const stored = await bucket.get(objectKey, { range });
    if (stored === null) return success(null);
    const { readable, writable } = new FixedLengthStream(length);
    const skipped = offset - first * SEGMENT_BYTES;
    void open(stored.body, { key, first, skipped, length }, writable.getWriter());
    return success(readable);
  } catch (error: unknown) {
    logWarning('content_not_read', { detail: messageOf(error) });
    return failure('storage_unavailable', 'the storage does not answer', { retry_after_s: 2 });
  }
}

async function open(
  body: ReadableStream<Uint8Array>,
  wanted: { key: CryptoKey; first: number; skipped: number; length: number },
  writer: WritableStreamDefaultWriter<Uint8Array>,
): Promise<void> {
  const cutter = new ByteCutter(SEGMENT_BYTES + SEAL_BYTES);
  let { first: segment, skipped, length: left } = wanted;
  const give = async (sealed: Uint8Array<ArrayBuffer>): Promise<void> => {
    const bytes = await openSegment(wanted.key, placeOf(segment), sealed);
    segment += 1;
    const asked = bytes.subarray(skipped, skipped + left);
    skipped = 0;
    left -= asked.length;
    await writer.write(asked);
  };
  try {
    for await (const bytes of body) for (const sealed of cutter.push(bytes)) await give(sealed);
    const rest = cutter.rest();
    if (rest !== undefined) await give(rest);
    await writer.close();
  } catch (error: unknown) {
    logWarning('content_cut', { detail: messageOf(error) });
    await writer.abort(error).catch(() => undefined);
  }
}
