/** Conditions and ranges of a request on one file (RFC 9110, sections 13 and 14), judged where the file is known. */
import type { Conditions, FileFacts, FileRequest, Range } from './transfer.ts';

type ReadRequest = Extract<FileRequest, { operation: 'read' }>;

export type ReadVerdict =
  | { answer: 'whole' | 'part'; offset: number; length: number }
  | { answer: 'not_modified' | 'precondition_failed' | 'range_not_satisfiable' };

export function judgeRead(request: ReadRequest, facts: FileFacts): ReadVerdict {
  if (!matches(request.if_match, facts.etag, 'strong')) return { answer: 'precondition_failed' };
  if (request.if_none_match !== null && matches(request.if_none_match, facts.etag, 'weak')) {
    return { answer: 'not_modified' };
  }
  const whole = { answer: 'whole', offset: 0, length: facts.size } as const;
  const isOfThis = request.if_range === null || request.if_range === facts.etag;
  if (request.range === null || request.head || !isOfThis) return whole;
  const piece = pieceOf(request.range, facts.size);
  return piece === undefined ? { answer: 'range_not_satisfiable' } : { answer: 'part', ...piece };
}

/** Whether a write may replace what is there; null where nothing is. */
export function mayWrite({ if_match, if_none_match }: Conditions, before: FileFacts | null): boolean {
  if (before === null) return if_match === null;
  if (!matches(if_match, before.etag, 'strong')) return false;
  return if_none_match === null || !matches(if_none_match, before.etag, 'weak');
}

/** No condition matches anything. */
function matches(tags: Conditions['if_match'], etag: string, comparison: 'strong' | 'weak'): boolean {
  if (tags === null || tags === '*') return true;
  return tags.some((tag) => (comparison === 'weak' ? tag.replace(/^W\//, '') : tag) === etag);
}

function pieceOf(range: Range, size: number): { offset: number; length: number } | undefined {
  const first = 'suffix' in range ? Math.max(0, size - range.suffix) : range.first;
  const last = 'suffix' in range ? size - 1 : Math.min(range.last ?? size - 1, size - 1);
  return first > last || first >= size ? undefined : { offset: first, length: last - first + 1 };
}
