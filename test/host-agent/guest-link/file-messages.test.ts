import { describe, expect, it } from 'vitest';
import {
  fileRequest,
  parseFileReply,
  parseList,
  parseStat,
} from '../../../host-agent/guest-link/file-messages.ts';
import { parseChanges } from '../../../host-agent/guest-link/file-transfer.ts';

const status = (type: number, size = '0000000000000005') =>
  Buffer.from(
    `${type.toString(16).padStart(2, '0')}000001ff${size}ffffffffffffffff0000000100000000000000240000000000000048`,
    'hex',
  );
const entry = (name: string, type = 1) =>
  Buffer.concat([status(type), Buffer.from([0, Buffer.byteLength(name)]), Buffer.from(name)]);
const NO_CURSOR = Buffer.from('ffffffff', 'hex');

describe('answers of the file server', () => {
  it('are read as they are meant', () => {
    expect(parseStat(Buffer.concat([status(2), Buffer.from([1])]))).toEqual({
      type: 'directory',
      mode: 0o777,
      size: 5,
      mtimeMs: -1,
      version: '10-5-20',
      link: true,
    });
    expect(parseList(Buffer.concat([Buffer.from([0, 0, 0, 9]), entry('b'), entry('a')]))).toMatchObject({
      entries: [{ name: Buffer.from('a') }, { name: Buffer.from('b') }],
      nextCursor: 9,
    });
    expect(parseList(NO_CURSOR)).toEqual({ entries: [], nextCursor: null });
    expect(parseFileReply(Buffer.from([2, 0, 0, 0, 13]))).toMatchObject({ failure: { errno: 'EACCES' } });
    expect(parseFileReply(Buffer.from([2, 0, 0, 0x27, 0x11]))).toMatchObject({
      failure: { errno: 'not_regular' },
    });
    const named = Buffer.concat([Buffer.from([2, 0, 0, 0x27, 0x13]), Buffer.from('../x')]);
    expect(parseFileReply(named)).toMatchObject({
      failure: { errno: 'outside' },
      name: Buffer.from('../x'),
    });
    expect(parseFileReply(Buffer.from([2, 0xff, 0, 0, 0]))).toMatchObject({ failure: { errno: 'EIO' } });
  });

  it('hold no number that is not exact', () => {
    expect(parseStat(Buffer.concat([status(1, 'ffffffffffffffff'), Buffer.from([0])]))?.size).toBe(
      Number.MAX_SAFE_INTEGER,
    );
  });

  it.each([
    ['an unknown kind', () => parseFileReply(Buffer.from([9]))],
    ['nothing', () => parseFileReply(Buffer.alloc(0))],
    [
      'a failure with a name that has no end',
      () => parseFileReply(Buffer.concat([Buffer.from([2, 0, 0, 0, 13]), Buffer.alloc(4097)])),
    ],
    ['a change that is cut', () => parseChanges(Buffer.from([0, 0, 1, 0, 0, 3, 0x61]))],
    ['a change without a length', () => parseChanges(Buffer.from([0, 0, 1, 0]))],
    ['a failure without a reason', () => parseFileReply(Buffer.from([2, 0]))],
    ['a status that is cut', () => parseStat(status(1))],
    ['a type that does not exist', () => parseStat(Buffer.concat([status(9), Buffer.from([0])]))],
    ['a list without a cursor', () => parseList(Buffer.alloc(3))],
    ['an entry that is cut', () => parseList(Buffer.concat([NO_CURSOR, entry('name').subarray(0, -1)]))],
    ['an entry without a name', () => parseList(Buffer.concat([NO_CURSOR, entry('')]))],
    [
      'too many entries',
      () => parseList(Buffer.concat([NO_CURSOR, ...Array.from({ length: 1001 }, () => entry('n'))])),
    ],
  ])('are refused as %s', (_, parse) => {
    expect(parse()).toBeUndefined();
  });
});

describe('fileRequest', () => {
  it.each(['', 'a\0b', Buffer.from([0])])('refuses the path %j', (path) => {
    expect(fileRequest(1, Buffer.alloc(0), ['/', path])).toMatchObject({ failure: { errno: 'EINVAL' } });
  });
});
