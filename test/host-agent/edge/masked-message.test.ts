import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { maskedMessage } from '../../../host-agent/edge/masked-message.ts';
import { MAX_FRAME_PAYLOAD_BYTES, OUTPUT_FRAME_BYTES } from '../../../shared/limits.ts';

/** As a server reads it: RFC 6455 section 5.2, byte by byte. */
function read(message: Buffer): { key: string; body: Buffer } {
  expect(message[0]).toBe(0x82);
  const short = (message[1] ?? 0) & 0x7f;
  expect((message[1] ?? 0) & 0x80).toBe(0x80);
  const keyAt = short < 126 ? 2 : short === 126 ? 4 : 10;
  const length =
    short < 126 ? short : short === 126 ? message.readUInt16BE(2) : Number(message.readBigUInt64BE(2));
  const key = message.subarray(keyAt, keyAt + 4);
  const body = Buffer.from(message.subarray(keyAt + 4));
  expect(body.length).toBe(length);
  for (let index = 0; index < body.length; index += 1)
    body[index] = (body[index] ?? 0) ^ (key[index % 4] ?? 0);
  return { key: key.toString('hex'), body };
}

describe('a masked message', () => {
  test.each([
    0,
    1,
    2,
    3,
    4,
    123,
    124,
    125,
    126,
    127,
    4_095,
    65_533,
    65_534,
    65_535,
    65_536,
    OUTPUT_FRAME_BYTES,
    MAX_FRAME_PAYLOAD_BYTES,
  ])('has head and payload in one frame of the shortest form, with a payload of %i bytes', (bytes) => {
    for (const head of [randomBytes(1), randomBytes(2), randomBytes(203)]) {
      const payload = randomBytes(bytes);
      const { body } = read(maskedMessage([head, payload]).bytes);
      expect(body.equals(Buffer.concat([head, payload]))).toBe(true);
    }
  });

  test('has a key of its own each time', () => {
    const keys = Array.from(
      { length: 3_000 },
      () => read(maskedMessage([randomBytes(3), randomBytes(5)]).bytes).key,
    );
    // Of 3,000 random keys two are the same once in a thousand runs; three pairs never.
    expect(new Set(keys).size).toBeGreaterThan(keys.length - 3);
  });

  test('keeps its bytes until it is released, however many are made meanwhile', () => {
    const payloads = Array.from({ length: 40 }, () => randomBytes(OUTPUT_FRAME_BYTES));
    for (let round = 0; round < 2; round += 1) {
      const messages = payloads.map((payload) => maskedMessage([randomBytes(8), payload]));
      for (const [index, { bytes }] of messages.entries()) {
        expect(
          read(bytes)
            .body.subarray(8)
            .equals(payloads[index] ?? Buffer.alloc(0)),
        ).toBe(true);
      }
      for (const { release } of messages) release();
    }
  });
});
