/** The bytes of a caller's request on their way to the host. */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import { TRANSFER_CHUNK_BYTES } from '../../../../shared/transfer.ts';
import type { Transfer } from './transfer.ts';

/** Enough to be worth a frame, little enough that a slow client is seen to move. */
const LEAST_READ_BYTES = 16_384;
/**
 * How much of a body that nobody wants any more is still read, and for how long. Most clients send all of it before they
 * read: one whose connection ends meanwhile never sees the answer that says why.
 */
const MAX_UNWANTED_BYTES = 64 * 1024 * 1024;
const UNWANTED_MS = 5_000;

/** Fails where the caller's bytes end before their end. */
export async function upload(
  transfer: Transfer,
  body: ReadableStream<Uint8Array> | null,
): Promise<Outcome<null>> {
  const reading = readChunks(body, async (bytes) => transfer.push(bytes));
  void transfer.done.then(() => reading.endSoon());
  if (!(await reading.ended)) return failure('transfer_failed', 'the body ended before its end');
  transfer.allPushed();
  return success(null);
}

/** Reads what a request that was refused still sends, within bounds. */
export async function discard(body: ReadableStream<Uint8Array> | null): Promise<void> {
  const reading = readChunks(body, async () => false);
  reading.endSoon();
  await reading.ended;
}

interface Reading {
  /** False where the body broke off. */
  ended: Promise<boolean>;
  /** Nobody waits longer for bytes that may never be sent. */
  endSoon: () => void;
}

/** `take` gives false for bytes that are not wanted. */
function readChunks(
  body: ReadableStream<Uint8Array> | null,
  take: (bytes: Uint8Array) => Promise<boolean>,
): Reading {
  const reader = body?.getReader({ mode: 'byob' });
  const stop = async (): Promise<void> => reader?.cancel().catch(() => undefined);
  let hasEnded = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const run = async (): Promise<boolean> => {
    let unwantedBytes = 0;
    try {
      let buffer = new ArrayBuffer(TRANSFER_CHUNK_BYTES);
      while (reader !== undefined) {
        const read = await reader.readAtLeast(LEAST_READ_BYTES, new Uint8Array(buffer));
        if (read.value === undefined || read.value.length === 0) break;
        const { length } = read.value;
        if (!(await take(read.value))) unwantedBytes += length;
        if (read.done) break;
        if (unwantedBytes > MAX_UNWANTED_BYTES) {
          await stop();
          break;
        }
        // The buffer went away with the read and comes back with its bytes.
        buffer = read.value.buffer;
      }
      return true;
    } catch {
      return false;
    } finally {
      hasEnded = true;
      clearTimeout(timer ?? null);
    }
  };
  return {
    ended: run(),
    endSoon: () => {
      if (!hasEnded) timer ??= setTimeout(() => void stop(), UNWANTED_MS);
    },
  };
}
