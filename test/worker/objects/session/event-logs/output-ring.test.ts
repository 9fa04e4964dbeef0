import { describe, expect, test } from 'vitest';
import { MAX_FRAME_PAYLOAD_BYTES } from '../../../../../shared/limits.ts';
import { OutputRing } from '../../../../../worker/objects/session/event-logs/output-ring.ts';

describe('the ring of output', () => {
  test.each([1_000, 40_000, MAX_FRAME_PAYLOAD_BYTES])(
    'gives a reader every byte once it comes for more, in pieces of %i bytes',
    (size) => {
      const ring = new OutputRing();
      const pieces = 5;
      let [next, end] = [0, 0];
      for (let number = 0; number < pieces; number += 1) {
        ring.push({ stream: 'stdout', offset: number * size, bytes: new Uint8Array(size), seq: number + 1 });
        const read = ring.read(next, 100_000);
        next = read.next;
        for (const { offset, bytes } of read.pieces) {
          expect(offset).toBeLessThanOrEqual(end);
          end = Math.max(end, offset + bytes.length);
        }
      }
      expect(end).toBe(pieces * size);
    },
  );
});
