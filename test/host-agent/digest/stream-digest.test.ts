/** The digest of a stream, against Node's own. */
import { createHash, randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { loadDigestLibrary } from '../../../host-agent/digest/library.ts';
import { CarriedDigestSchema, StreamDigest } from '../../../host-agent/digest/stream-digest.ts';

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

describe('the digest of a stream', () => {
  test('of nothing is that of nothing', () => {
    expect(new StreamDigest().hex()).toBe(sha256(Buffer.alloc(0)));
  });

  test.each([1, 63, 64, 65, 1_000, 200_000])(
    'of %i bytes is the same in whatever pieces they come',
    (size) => {
      const bytes = randomBytes(size);
      const digest = new StreamDigest();
      for (let at = 0, piece = 1; at < size; at += piece, piece = (piece * 7 + 3) % 4_099) {
        digest.update(bytes.subarray(at, at + piece));
      }
      expect(digest.hex()).toBe(sha256(bytes));
    },
  );

  test('can be looked at in the middle, and goes on', () => {
    const digest = new StreamDigest();
    digest.update(Buffer.from('first '));
    expect(digest.hex()).toBe(sha256(Buffer.from('first ')));
    digest.update(Buffer.from('second'));
    expect(digest.hex()).toBe(sha256(Buffer.from('first second')));
  });

  test('goes on elsewhere after every byte', () => {
    const bytes = randomBytes(200);
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      const here = new StreamDigest();
      here.update(bytes.subarray(0, cut));
      const there = new StreamDigest(CarriedDigestSchema.parse(here.carry()));
      there.update(bytes.subarray(cut));
      expect(there.hex()).toBe(sha256(bytes));
    }
  });

  test('counts beyond 512 MiB, where its count of bits takes a second word', () => {
    const piece = Buffer.alloc(64 * 1024 * 1024, 'x');
    const whole = createHash('sha256');
    let digest = new StreamDigest();
    for (let pieces = 0; pieces < 9; pieces += 1) {
      digest.update(piece);
      whole.update(piece);
      digest = new StreamDigest(CarriedDigestSchema.parse(digest.carry()));
    }
    expect(digest.hex()).toBe(whole.digest('hex'));
  });
});

describe('a state that another host gives', () => {
  const withWord = (at: number, value: number): string => {
    const state = Buffer.from(new StreamDigest().carry(), 'base64');
    state.writeUInt32LE(value, at);
    return state.toString('base64');
  };

  test.each([
    ['of another length', Buffer.alloc(111).toString('base64')],
    ['that is no base64', '*'.repeat(152)],
    ['that fills more than a block', withWord(104, 65)],
    ['whose block does not fit its count', withWord(104, 7)],
    ['of a digest of another size', withWord(108, 28)],
  ])('%s is refused before anything reads it', (_what, state) => {
    expect(CarriedDigestSchema.safeParse(state).success).toBe(false);
  });
});

describe('the library', () => {
  test('that is not there, or is another, is an error that names it', () => {
    expect(loadDigestLibrary('/nonexistent/sha256.node')).toMatchObject({
      ok: false,
      detail: expect.stringContaining('/nonexistent/sha256.node'),
    });
    expect(loadDigestLibrary(new URL('../../../package.json', import.meta.url).pathname)).toMatchObject({
      ok: false,
      detail: expect.stringContaining('package.json'),
    });
  });
});
