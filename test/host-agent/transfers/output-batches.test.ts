import { expect, test } from 'vitest';
import { OutputRing, type Piece } from '../../../host-agent/sandbox/programs/output-ring.ts';
import type { Program } from '../../../host-agent/sandbox/programs/port.ts';
import { outputBatches } from '../../../host-agent/transfers/output-batches.ts';

const WRITES = 4_000;

/** Writes a byte to one stream and then to the other, a hundred each time that the loop of events turns. */
function chatty(): Program {
  const ring = new OutputRing(1_000_000);
  let written = 0;
  async function* follow(after: number): AsyncIterable<Piece> {
    let position = after;
    while (position < WRITES) {
      if (ring.endOffset === position) {
        for (let count = 0; count < 100; count += 1, written += 1)
          ring.push(written % 2 === 0 ? 'stdout' : 'stderr', Buffer.from('x'));
        await new Promise(setImmediate);
      }
      const piece = ring.from(position);
      if (piece === undefined) continue;
      yield piece;
      position = piece.offset + piece.bytes.length;
    }
  }
  return {
    id: 'prc_chatty',
    command: '',
    cwd: '/',
    pid: 1,
    startedAtMs: 0,
    end: undefined,
    ended: new Promise(() => {}),
    startOffset: 0,
    get endOffset() {
      return ring.endOffset;
    },
    follow,
    stop: async () => {},
  };
}

test('many small writes come in few batches, whole and in their order', async () => {
  const batches: number[] = [];
  let position = 0;
  for await (const batch of outputBatches(chatty(), 0, new AbortController().signal)) {
    batches.push(batch.length);
    for (const item of batch) {
      expect('bytes' in item ? item.offset : undefined).toBe(position);
      position += 'bytes' in item ? item.bytes.length : 0;
    }
  }
  expect(position).toBe(WRITES);
  expect(batches.length).toBe(WRITES / 100);
});
