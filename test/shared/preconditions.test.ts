import { describe, expect, test } from 'vitest';
import { judgeRead, mayWrite } from '../../shared/preconditions.ts';
import type { FileFacts, FileRequest } from '../../shared/transfer.ts';

type ReadRequest = Extract<FileRequest, { operation: 'read' }>;

const FACTS: FileFacts = { type: 'file', size: 10, mode: 0o644, modified_ms: 0, etag: '"a"' };

function read(more: Partial<ReadRequest> = {}, facts: Partial<FileFacts> = {}) {
  const plain: ReadRequest = {
    operation: 'read',
    path: 'eA==',
    if_match: null,
    if_none_match: null,
    range: null,
    if_range: null,
    head: false,
  };
  return judgeRead({ ...plain, ...more }, { ...FACTS, ...facts });
}

describe('a read', () => {
  test.each([
    ['nothing said', {}, { answer: 'whole', offset: 0, length: 10 }],
    ['the first byte', { range: { first: 0, last: 0 } }, { answer: 'part', offset: 0, length: 1 }],
    ['the last byte', { range: { first: 9, last: null } }, { answer: 'part', offset: 9, length: 1 }],
    ['more than there is', { range: { first: 5, last: 99 } }, { answer: 'part', offset: 5, length: 5 }],
    ['all of it', { range: { first: 0, last: null } }, { answer: 'part', offset: 0, length: 10 }],
    ['a suffix', { range: { suffix: 3 } }, { answer: 'part', offset: 7, length: 3 }],
    ['a suffix longer than the file', { range: { suffix: 99 } }, { answer: 'part', offset: 0, length: 10 }],
    ['the end of the file', { range: { first: 10, last: null } }, { answer: 'range_not_satisfiable' }],
    ['an empty suffix', { range: { suffix: 0 } }, { answer: 'range_not_satisfiable' }],
  ] as const)('with %s', (_, more, verdict) => {
    expect(read(more)).toEqual(verdict);
  });

  test('of an empty file has no range, and is whole without one', () => {
    expect(read({ range: { first: 0, last: null } }, { size: 0 }).answer).toBe('range_not_satisfiable');
    expect(read({ range: { suffix: 5 } }, { size: 0 }).answer).toBe('range_not_satisfiable');
    expect(read({}, { size: 0 })).toEqual({ answer: 'whole', offset: 0, length: 0 });
  });

  test('takes a range only of the file that it is of', () => {
    const range = { first: 1, last: 2 };
    expect(read({ range, if_range: '"a"' }).answer).toBe('part');
    expect(read({ range, if_range: '"b"' }).answer).toBe('whole');
    expect(read({ range, if_range: 'W/"a"' }).answer).toBe('whole');
    expect(read({ range, head: true }).answer).toBe('whole');
  });

  test('compares strongly for If-Match and weakly for If-None-Match', () => {
    expect(read({ if_match: ['"b"', '"a"'] }).answer).toBe('whole');
    expect(read({ if_match: ['W/"a"'] }).answer).toBe('precondition_failed');
    expect(read({ if_match: '*' }).answer).toBe('whole');
    expect(read({ if_none_match: ['W/"a"'] }).answer).toBe('not_modified');
    expect(read({ if_none_match: ['"b"'] }).answer).toBe('whole');
    expect(read({ if_none_match: '*' }).answer).toBe('not_modified');
  });

  test('judges conditions before the range', () => {
    const range = { first: 99, last: null };
    expect(read({ range, if_none_match: ['"a"'] }).answer).toBe('not_modified');
    expect(read({ range, if_match: ['"b"'] }).answer).toBe('precondition_failed');
  });
});

describe('a write', () => {
  test.each([
    ['without a condition makes a file', { if_match: null, if_none_match: null }, null, true],
    ['without a condition replaces one', { if_match: null, if_none_match: null }, FACTS, true],
    ['for a new file makes it', { if_match: null, if_none_match: '*' }, null, true],
    ['for a new file replaces none', { if_match: null, if_none_match: '*' }, FACTS, false],
    ['for this file replaces it', { if_match: ['"a"'], if_none_match: null }, FACTS, true],
    ['for this file replaces no other', { if_match: ['"b"'], if_none_match: null }, FACTS, false],
    ['for any file makes none', { if_match: '*', if_none_match: null }, null, false],
    ['for any other file does not replace this', { if_match: null, if_none_match: ['"a"'] }, FACTS, false],
  ] as const)('%s', (_, conditions, before, expected) => {
    const { if_match, if_none_match } = conditions;
    const tags = (given: '*' | readonly string[] | null) =>
      given === null || given === '*' ? given : [...given];
    expect(mayWrite({ if_match: tags(if_match), if_none_match: tags(if_none_match) }, before)).toBe(expected);
  });
});
