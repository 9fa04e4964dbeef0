/** Bytes that the edge keeps as an answer: all of them or a range, under the conditions of the request. */
import { failure } from '../../shared/errors.ts';
import { judgeRead } from '../../shared/preconditions.ts';
import type { FileFacts } from '../../shared/transfer.ts';
import { Refusal } from '../middleware/refusal.ts';
import { conditionsOf, ifRangeOf, rangeOf } from './file-headers.ts';

export interface Stretch {
  answer: 'whole' | 'part';
  offset: number;
  length: number;
}

export interface KeptBytes {
  facts: FileFacts;
  /** What a refusal says. */
  refusals: { precondition_failed: string; range_not_satisfiable: string };
  /** Of an answer without content, as the client has it still. */
  factHeaders: Record<string, string>;
  headersOf: (stretch: Stretch) => Record<string, string>;
  /** Null for nothing. */
  bodyOf: (
    stretch: Stretch,
  ) => ReadableStream<Uint8Array> | null | Promise<ReadableStream<Uint8Array> | null>;
}

export async function answerKept({ headers, method }: Request, kept: KeptBytes): Promise<Response> {
  const { facts, refusals } = kept;
  const verdict = judgeRead(
    {
      operation: 'read',
      path: '',
      ...conditionsOf(headers),
      range: rangeOf(headers),
      if_range: ifRangeOf(headers),
      head: method === 'HEAD',
    },
    facts,
  );
  switch (verdict.answer) {
    case 'precondition_failed':
      throw new Refusal(failure('precondition_failed', refusals.precondition_failed));
    case 'range_not_satisfiable':
      throw new Refusal(failure('range_not_satisfiable', refusals.range_not_satisfiable), {
        'Content-Range': `bytes */${facts.size}`,
      });
    case 'not_modified':
      return new Response(null, { status: 304, headers: kept.factHeaders });
    case 'whole':
    case 'part': {
      const body = method === 'HEAD' ? null : await kept.bodyOf(verdict);
      return new Response(body, {
        status: verdict.answer === 'part' ? 206 : 200,
        headers: kept.headersOf(verdict),
      });
    }
  }
}
