import { describe, expect, it } from 'vitest';
import { LengthPrefixedDecoder, lengthPrefixed } from '../../../host-agent/guest-link/length-prefixed.ts';

describe('LengthPrefixedDecoder', () => {
  it('gives the same bodies wherever the bytes are cut', () => {
    const bodies = ['one', '', 'three'].map((text) => Buffer.from(text));
    const whole = Buffer.concat(bodies.map(lengthPrefixed));
    for (let size = 1; size <= whole.length; size++) {
      const decoder = new LengthPrefixedDecoder(5);
      const got = [];
      for (let at = 0; at < whole.length; at += size) {
        const result = decoder.push(whole.subarray(at, at + size));
        expect(result.failure).toBeUndefined();
        got.push(...result.bodies);
      }
      expect(got).toEqual(bodies);
    }
  });

  it('refuses a body beyond its bound before it comes, and everything after', () => {
    const decoder = new LengthPrefixedDecoder(5);
    expect(decoder.push(Buffer.from([0, 0, 0, 6])).failure?.reason).toBe('protocol');
    expect(decoder.push(lengthPrefixed(Buffer.from('x')))).toMatchObject({
      bodies: [],
      failure: { reason: 'protocol' },
    });
  });

  it('gives what came before a body that is refused', () => {
    const bytes = Buffer.concat([lengthPrefixed(Buffer.from('first')), Buffer.from('ffffffff', 'hex')]);
    expect(new LengthPrefixedDecoder(5).push(bytes)).toMatchObject({
      bodies: [Buffer.from('first')],
      failure: { reason: 'protocol' },
    });
  });

  it('takes a long message in single bytes without moving what came before for each of them', () => {
    const bytes = 8 * 1024 * 1024;
    const decoder = new LengthPrefixedDecoder(bytes);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(bytes, 0);
    decoder.push(length);
    const singles = 200_000;
    decoder.push(Buffer.alloc(bytes - singles));
    const single = Buffer.from('x');
    for (let count = 1; count < singles; count++) expect(decoder.push(single).bodies.length).toBe(0);
    expect(decoder.push(single).bodies[0]?.subarray(-2).toString()).toBe('xx');
  });

  it('reserves no room for what was only announced', () => {
    const decoder = new LengthPrefixedDecoder(0xffff_ffff);
    expect(decoder.push(Buffer.from('fffffffe00', 'hex'))).toEqual({ bodies: [] });
  });
});
