/** What an execution wrote to a stream, as bytes: all that is kept of it, or a range. */
import * as z from 'zod';
import { fromHex, toBase64 } from '../../shared/encoding.ts';
import type { Outcome } from '../../shared/errors.ts';
import { type StreamName, StreamNameSchema } from '../../shared/execution.ts';
import { executionIdOf, notFound, type OwnSession, ownSession } from '../calls/own-session.ts';
import { contentKey } from '../content/content-key.ts';
import { answerKept, type Stretch } from '../content/kept-bytes.ts';
import { openSegment } from '../content/sealed-segment.ts';
import { BYTES_MEDIA_TYPE } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { logWarning, messageOf } from '../objects/log.ts';
import { SAFE } from '../objects/object-calls.ts';
import { chunkName, outputsPrefix } from '../objects/session/outputs/place.ts';
import type { OutputExtent, StoredChunk } from '../objects/session/outputs/port.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';

const BYTES = { [BYTES_MEDIA_TYPE]: z.string() };

export const readOutput = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}/executions/{execution_id}/output/{stream}',
  operationId: 'readOutput',
  summary:
    'The bytes that an execution wrote to `stdout` or `stderr`, from the first one on as far as they are kept: up to 64 MiB of each',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  headers: {
    Range: 'One range of bytes; several are answered with all of them.',
    'If-Range': 'The range counts only while the bytes have this `ETag`.',
    'If-Match': 'Only while the bytes have one of these.',
    'If-None-Match': 'Only unless the bytes have one of these.',
  },
  answers: {
    200: {
      description: 'All that is kept',
      content: BYTES,
      headers: ['ETag', 'Accept-Ranges', 'Repr-Digest', 'Sandgate-Written-Bytes'],
    },
    206: {
      description: 'The range of it',
      content: BYTES,
      headers: ['Content-Range', 'ETag', 'Repr-Digest', 'Sandgate-Written-Bytes'],
    },
    304: { description: 'The bytes still have that `ETag`', headers: ['ETag'] },
  },
  errors: ['not_found', 'precondition_failed', 'range_not_satisfiable'],
  handle: async (exchange, { params }) => {
    const session = await ownSession(exchange, params.session_id);
    const executionId = executionIdOf(params.execution_id);
    const stream = StreamNameSchema.safeParse(params.stream);
    if (!stream.success) throw notFound('no such stream: stdout or stderr');
    const source = { exchange, session, executionId, stream: stream.data };
    const extent = await session.call(
      (stub) => stub.outputExtent(session.caller, executionId, stream.data),
      SAFE,
    );
    return answer(source, unwrap(extent));
  },
});

interface Source {
  exchange: Exchange<'tenant'>;
  session: OwnSession;
  executionId: string;
  stream: StreamName;
}

function answer(source: Source, extent: OutputExtent): Promise<Response> {
  const etag = `"${source.executionId}-${source.stream}-${extent.bytes}"`;
  return answerKept(source.exchange.request, {
    facts: { type: 'file', size: extent.bytes, mode: 0o444, modified_ms: 0, etag },
    refusals: {
      precondition_failed: 'the output is not as the condition says',
      range_not_satisfiable: `${extent.bytes} bytes are kept`,
    },
    factHeaders: { ETag: etag },
    headersOf: (part) => ({ ETag: etag, ...contentHeaders(extent, part) }),
    bodyOf: ({ offset, length }) =>
      length === 0 ? null : bytesOf(source, { from: offset, to: offset + length }),
  });
}

function contentHeaders(
  { bytes, totalBytes, sha256 }: OutputExtent,
  { answer: kind, offset, length }: Stretch,
): Record<string, string> {
  return {
    'Accept-Ranges': 'bytes',
    'Cache-Control': 'no-store, no-transform',
    'Content-Type': BYTES_MEDIA_TYPE,
    'Content-Length': String(length),
    'Sandgate-Written-Bytes': String(totalBytes),
    ...(sha256 === null ? {} : { 'Repr-Digest': `sha-256=:${toBase64(fromHex(sha256))}:` }),
    ...(kind === 'part' ? { 'Content-Range': `bytes ${offset}-${offset + length - 1}/${bytes}` } : {}),
  };
}

function bytesOf(source: Source, stretch: { from: number; to: number }): ReadableStream<Uint8Array> {
  const { readable, writable } = new FixedLengthStream(stretch.to - stretch.from);
  void give(source, stretch, writable.getWriter());
  return readable;
}

/** Piece by piece, each from where it is at that moment: what is in rows now may be in R2 a moment later. */
async function give(
  source: Source,
  { from, to }: { from: number; to: number },
  writer: WritableStreamDefaultWriter<Uint8Array>,
): Promise<void> {
  try {
    for (let at = from; at < to; ) {
      const bytes = (await pieceAt(source, at)).subarray(0, to - at);
      if (bytes.length === 0) throw new Error('the output is gone');
      await writer.write(bytes);
      at += bytes.length;
    }
    await writer.close();
  } catch (error: unknown) {
    logWarning('output_cut', { execution_id: source.executionId, detail: messageOf(error) });
    await writer.abort(error).catch(() => undefined);
  }
}

async function pieceAt(source: Source, at: number): Promise<Uint8Array> {
  const { session, executionId, stream } = source;
  const found: Outcome<{ chunk: StoredChunk } | { bytes: Uint8Array }> = await session.call(
    (stub) => stub.outputAt(session.caller, executionId, { stream, at }),
    SAFE,
  );
  const piece = unwrap(found);
  if ('bytes' in piece) return piece.bytes;
  return (await openChunk(source, piece.chunk)).subarray(at - piece.chunk.offset);
}

async function openChunk(
  { exchange, session, executionId, stream }: Source,
  chunk: StoredChunk,
): Promise<Uint8Array> {
  const { tenant } = session.caller;
  const name = chunkName(stream, chunk);
  const owner = { tenant, sessionId: session.sessionId };
  const stored = await exchange.env.CONTENT.get(`${outputsPrefix(owner, executionId)}${name}`);
  if (stored === null) throw new Error('a chunk is gone');
  const key = await contentKey(exchange.configuration.contentRoot, {
    kind: 'output',
    tenant,
    id: executionId,
  });
  return openSegment(key, name, new Uint8Array(await stored.arrayBuffer()));
}
