import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { SealingThreads } from '../../../host-agent/snapshots/sealing-threads.ts';

const KEYS = {
  key: new Uint8Array(randomBytes(32)),
  nonceKey: new Uint8Array(randomBytes(32)),
  additionalData: new TextEncoder().encode('snp_one'),
};
const MIB = 1024 ** 2;

const random = (bytes: number): Uint8Array<ArrayBuffer> => new Uint8Array(randomBytes(bytes));

describe('the threads that seal pieces', () => {
  it('give back what they were given, however large and however many at once', async () => {
    const threads = new SealingThreads();
    const pieces = [0, 1, 100, MIB, 4 * MIB, 4 * MIB - 1, 64 * 1024].map(random);
    const copies = pieces.map((piece) => piece.slice());
    const sealed = await Promise.all(pieces.map((piece) => threads.seal(KEYS, piece)));
    const opened = await Promise.all(
      sealed.map(({ stored }, index) => threads.open(KEYS, stored, copies[index]?.length ?? -1)),
    );
    for (const [index, copy] of copies.entries()) {
      expect(Buffer.compare(opened[index] ?? random(1), copy), `piece ${index}`).toBe(0);
    }
    expect(threads.count).toBe(2);
  });

  it('seal a part of a larger buffer and leave the rest of it alone', async () => {
    const threads = new SealingThreads();
    const whole = random(1000);
    const { stored } = await threads.seal(KEYS, whole.subarray(100, 200));
    expect(whole.length).toBe(1000);
    expect(await threads.open(KEYS, stored, 100)).toEqual(whole.slice(100, 200));
  });

  it('use memory again that they are given for it, and give that of the piece back', async () => {
    const threads = new SealingThreads();
    let piece = random(MIB);
    let into = new ArrayBuffer(MIB + 64 * 1024);
    for (let round = 0; round < 3; round += 1) {
      const copy = piece.slice();
      const { stored, spent } = await threads.sealInto(KEYS, piece, into);
      expect([piece.length, into.byteLength, stored.buffer.byteLength]).toEqual([0, 0, MIB + 64 * 1024]);
      expect(Buffer.compare((await threads.open(KEYS, stored.slice(), MIB)) ?? random(1), copy)).toBe(0);
      into = stored.buffer;
      piece = new Uint8Array(spent ?? new ArrayBuffer(0));
      expect(piece.length).toBe(MIB);
      piece.set(random(MIB));
    }
    const { stored } = await threads.sealInto(KEYS, piece, new ArrayBuffer(10));
    expect(stored.length).toBeGreaterThan(MIB);
  });

  it('leave alone what does not compress, and compress what does in part', async () => {
    const threads = new SealingThreads();
    const overheadBytes = 12 + 16 + 9 + 3 * 8;
    expect((await threads.seal(KEYS, random(MIB))).stored).toHaveLength(MIB + overheadBytes);
    const half = random(MIB).fill(0, MIB / 2);
    const { stored } = await threads.seal(KEYS, half.slice());
    expect(stored.length).toBeLessThan(0.6 * MIB);
    expect(Buffer.compare((await threads.open(KEYS, stored, MIB)) ?? random(1), half)).toBe(0);
  });

  it('open nothing that is another, longer or shorter, or of another key or snapshot', async () => {
    const threads = new SealingThreads();
    const { stored } = await threads.seal(KEYS, random(1000));
    const changed = stored.slice();
    changed[500] = (changed[500] ?? 0) ^ 1;
    const key = new Uint8Array(randomBytes(32));
    const additionalData = new TextEncoder().encode('snp_two');
    expect(await threads.open(KEYS, changed, 1000)).toBeUndefined();
    expect(await threads.open(KEYS, stored.slice(), 999)).toBeUndefined();
    expect(await threads.open(KEYS, stored.slice(), 1001)).toBeUndefined();
    expect(await threads.open(KEYS, stored.slice(0, -1), 1000)).toBeUndefined();
    expect(await threads.open({ ...KEYS, key }, stored.slice(), 1000)).toBeUndefined();
    expect(await threads.open({ ...KEYS, additionalData }, stored.slice(), 1000)).toBeUndefined();
    expect(await threads.open(KEYS, stored.slice(), 1000)).toHaveLength(1000);
  });

  it('lose one piece and no other where one of them dies', async () => {
    const threads = new SealingThreads();
    const broken = threads.seal({ ...KEYS, key: new Uint8Array(5) }, random(10));
    const others = Array.from({ length: 6 }, () => threads.seal(KEYS, random(10)));
    await expect(broken).rejects.toThrow(/key length/i);
    expect(await Promise.all(others)).toHaveLength(6);
  });

  it('go on where what they were given is given away already', async () => {
    const threads = new SealingThreads();
    for (let n = 0; n < 4; n += 1) {
      const piece = random(MIB);
      await threads.seal(KEYS, piece);
      await expect(threads.seal(KEYS, piece)).rejects.toThrow();
    }
    expect((await threads.seal(KEYS, random(10))).stored).toHaveLength(47);
  });

  it('are as many as what is to be done is worth', async () => {
    const threads = new SealingThreads();
    const seal = (pieces: number) =>
      Promise.all(Array.from({ length: pieces }, () => threads.seal(KEYS, random(10))));
    await seal(8);
    expect(threads.count).toBe(1);
    await seal(8);
    expect(threads.count).toBe(2);
  });

  it('are gone when nothing was to be done for a while', async () => {
    const threads = new SealingThreads(50);
    await Promise.all([threads.seal(KEYS, random(10)), threads.seal(KEYS, random(10))]);
    expect(threads.count).toBe(1);
    await expect.poll(() => threads.count).toBe(0);
    expect((await threads.seal(KEYS, random(10))).stored).toHaveLength(47);
  });
});
