/** An execution as the API shows it, put together from its rows. */
import type { Envelope } from '../../../../shared/dsse.ts';
import { concatBytes } from '../../../../shared/encoding.ts';
import type { Execution, RichResult, StreamName } from '../../../../shared/execution.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import { INLINE_BYTES, INLINE_HEAD_BYTES, INLINE_TAIL_BYTES } from '../../../../shared/limits.ts';
import { readEnvelope } from '../../../../shared/receipt-verify.ts';
import { streamText, withoutCutEnd, withoutCutStart } from '../event-logs/stream-text.ts';
import type { ExecutionRecord, OutputPiece, PartPiece } from '../rows/records.ts';
import type { SessionStore } from '../rows/store.ts';

export interface ViewOptions {
  sessionId: string;
  encoding: 'utf-8' | 'base64';
  /** Without the text of the streams: a reader of the stream has it already. */
  withoutText?: boolean;
  /** What is at hand is not read again. */
  receipt?: Envelope | undefined;
  content?: ExecutionContent | undefined;
}

export interface ExecutionContent {
  pieces: readonly OutputPiece[];
  parts: readonly PartPiece[];
}

export const NO_CONTENT: ExecutionContent = { pieces: [], parts: [] };

/** For a list, where many are shown at once: nothing of what it wrote or gave is read. */
export function executionSummary(
  record: ExecutionRecord,
  store: SessionStore,
  options: Pick<ViewOptions, 'sessionId' | 'encoding'>,
): Execution {
  const view = executionView(record, store, { ...options, withoutText: true, content: NO_CONTENT });
  return { ...view, truncated: record.truncated };
}

export function executionView(record: ExecutionRecord, store: SessionStore, options: ViewOptions): Execution {
  const ended = isTerminal(record.status);
  const { pieces, parts } = options.content ?? {
    pieces: store.output.all(record.n),
    parts: store.output.parts(record.n),
  };
  const stdout = inlineStream(pieces, 'stdout', record.stdoutBytes);
  const stderr = inlineStream(pieces, 'stderr', record.stderrBytes);
  const { value, structured, results } = asCalled(record, resultParts(parts));
  const receipt =
    options.receipt ?? (record.receiptSeq === null ? null : (store.receipt(record.receiptSeq) ?? null));
  const text = (stream: InlineStream) =>
    options.withoutText === true ? '' : inlineText(stream, options.encoding);
  return {
    execution_id: record.executionId,
    session_id: options.sessionId,
    tool_name: record.calledAs?.name ?? record.tool,
    ...(record.parentId === null ? {} : { parent_execution_id: record.parentId }),
    status: record.status,
    exit_code: record.exitCode,
    signal: record.signal,
    stdout: text(stdout),
    stderr: text(stderr),
    encoding: options.encoding,
    truncated: record.truncated || (ended && (stdout.truncated || stderr.truncated)),
    stdout_bytes: stdout.totalBytes,
    stderr_bytes: stderr.totalBytes,
    value,
    structured,
    results,
    error: record.error,
    reason: record.reason,
    state_lost: record.stateLost,
    ...(record.rolledBack ? { rolled_back: true } : {}),
    ...(record.expired ? { content_expired: true } : {}),
    created_at: new Date(record.createdAtMs).toISOString(),
    started_at: record.startedAt,
    finished_at: record.finishedAt,
    duration_ms: record.durationMs,
    timings_ms: ended ? { admit: record.admitMs, place: record.placeMs, exec: record.durationMs ?? 0 } : null,
    receipt,
    ...(record.stored === null ? {} : { output: storedOutput(record, options.sessionId, receipt) }),
  };
}

/** Of streams that are longer than a result holds, where the rest of them is. */
function storedOutput(
  { executionId, stored, stdoutBytes, stderrBytes }: ExecutionRecord,
  sessionId: string,
  receipt: Envelope | null,
): Execution['output'] {
  const read = receipt === null ? undefined : readEnvelope(receipt);
  const signed = read?.ok === true ? read.value.receipt : undefined;
  const of = (stream: StreamName, bytes: number) => {
    const storedBytes = Math.min(bytes, stored?.[stream] ?? 0);
    return {
      bytes,
      stored_bytes: storedBytes,
      sha256: storedBytes === bytes ? (signed?.[stream].sha256 ?? null) : null,
      url: `/v1/sessions/${sessionId}/executions/${executionId}/output/${stream}`,
    };
  };
  return {
    ...(stdoutBytes > INLINE_BYTES ? { stdout: of('stdout', stdoutBytes) } : {}),
    ...(stderrBytes > INLINE_BYTES ? { stderr: of('stderr', stderrBytes) } : {}),
  };
}

interface InlineStream {
  head: Uint8Array;
  tail: Uint8Array;
  truncated: boolean;
  totalBytes: number;
}

/** Head and tail of a stream; the two meet unless it is longer than both. `statedBytes` is the host's total. */
function inlineStream(pieces: readonly OutputPiece[], stream: StreamName, statedBytes: number): InlineStream {
  const own = pieces.filter((piece) => piece.stream === stream);
  const seenBytes = own.reduce((end, piece) => Math.max(end, piece.offset + piece.bytes.length), 0);
  const totalBytes = Math.max(statedBytes, seenBytes);
  const head = cover(own, 0, INLINE_HEAD_BYTES);
  const tailFrom = Math.max(head.length, totalBytes - INLINE_TAIL_BYTES);
  const tail = coverEnd(own, tailFrom, totalBytes);
  return { head, tail, totalBytes, truncated: head.length + tail.length < totalBytes };
}

/** The bytes from `from` on, up to `to`, as far as they lie without a hole. */
function cover(pieces: readonly OutputPiece[], from: number, to: number): Uint8Array {
  const chunks: Uint8Array[] = [];
  let end = from;
  for (const { offset, bytes } of pieces) {
    if (offset > end || offset + bytes.length <= end) continue;
    const chunk = bytes.subarray(end - offset, Math.min(bytes.length, to - offset));
    chunks.push(chunk);
    end += chunk.length;
    if (end >= to) break;
  }
  return chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : concatBytes(chunks);
}

/** The longest run of bytes that ends at `to` and begins at `from` or later. */
function coverEnd(pieces: readonly OutputPiece[], from: number, to: number): Uint8Array {
  let start = from;
  let end = from;
  for (const { offset, bytes } of pieces) {
    if (offset + bytes.length <= end) continue;
    if (offset > end) start = offset;
    end = offset + bytes.length;
  }
  return end === to && start < to ? cover(pieces, start, to) : new Uint8Array(0);
}

function inlineText(stream: InlineStream, encoding: 'utf-8' | 'base64'): string {
  if (!stream.truncated) return streamText(concatBytes([stream.head, stream.tail]), encoding);
  if (encoding === 'base64') return streamText(concatBytes([stream.head, stream.tail]), encoding);
  const omittedBytes = stream.totalBytes - stream.head.length - stream.tail.length;
  const head = streamText(withoutCutEnd(stream.head), encoding);
  const tail = streamText(withoutCutStart(stream.tail), encoding);
  return `${head}\n[${omittedBytes} bytes omitted]\n${tail}`;
}

const textDecoder = new TextDecoder('utf-8', { fatal: false, ignoreBOM: true });

/** Only complete ones: of an execution whose end was not seen there may be pieces without their last. */
export function resultParts(parts: readonly PartPiece[]): {
  value: string | null;
  structured: unknown;
  results: RichResult[];
} {
  const fields = new Map<string, { mime: string; chunks: Uint8Array[]; complete: boolean }>();
  for (const part of parts) {
    const name = `${part.field}:${part.idx}`;
    const field = fields.get(name) ?? { mime: part.mime, chunks: [], complete: false };
    field.chunks.push(part.bytes);
    field.complete ||= part.last;
    fields.set(name, field);
  }
  const results: RichResult[] = [];
  let value: string | null = null;
  let structured: unknown = null;
  for (const [name, field] of fields) {
    if (!field.complete) continue;
    const text = textDecoder.decode(concatBytes(field.chunks));
    if (name.startsWith('value:')) value = text;
    else if (name.startsWith('structured:')) structured = parseOrNull(text);
    else results.push({ mime: field.mime, data: text });
  }
  return { value, structured, results };
}

/** What a registered tool gave is the JSON that its cell has as value. */
function asCalled({ calledAs }: ExecutionRecord, parts: ReturnType<typeof resultParts>) {
  if (calledAs === null || parts.value === null) return parts;
  return { ...parts, value: null, structured: parseOrNull(parts.value) };
}

function parseOrNull(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
