/**
 * What a program writes, for a reader on a link: in few frames, however small the writes are. The edge closes a link that
 * brings thousands of small ones a second, and several readers may follow one program.
 */
import { setTimeout as wait } from 'node:timers/promises';
import type { Piece } from '../sandbox/programs/output-ring.ts';
import type { Gap, Program } from '../sandbox/programs/port.ts';

const MAX_BATCH_BYTES = 64 * 1024;
const MAX_BATCH_ITEMS = 512;
/** After all that there was: what comes meanwhile goes together. What comes after a rest goes at once. */
const PAUSE_MS = 20;

export async function* outputBatches(
  program: Program,
  after: number,
  signal: AbortSignal,
): AsyncIterable<(Piece | Gap)[]> {
  let batch: (Piece | Gap)[] = [];
  let bytes = 0;
  for await (const item of program.follow(after, signal)) {
    batch.push(item);
    // What lies behind it comes at once.
    if ('gap' in item) continue;
    bytes += item.bytes.length;
    const isAll = item.offset + item.bytes.length >= program.endOffset;
    if (!isAll && bytes < MAX_BATCH_BYTES && batch.length < MAX_BATCH_ITEMS) continue;
    yield batch;
    batch = [];
    bytes = 0;
    if (isAll) await wait(PAUSE_MS, undefined, { signal }).catch(() => undefined);
  }
  if (batch.length > 0) yield batch;
}
