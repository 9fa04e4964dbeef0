/** The output of an execution as it is read from outside: how much there is, and the piece at a place. */
import type { StreamName } from '../../../../shared/execution.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import { INLINE_BYTES } from '../../../../shared/limits.ts';
import { readEnvelope } from '../../../../shared/receipt-verify.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionRuntime } from '../runtime.ts';
import type { OutputAt, OutputExtent } from './port.ts';

const MOST_BYTES = 1_048_576;

export function outputExtent(
  { store, logs, outputs }: SessionRuntime,
  record: ExecutionRecord,
  stream: StreamName,
): OutputExtent {
  const log = isTerminal(record.status) ? logs.ofEnded(record) : logs.of(record);
  const written = Math.max(log.endOf(stream), writtenBytes(record, stream));
  const stored = outputs.store.chunks(record.n, stream).at(-1);
  const storedEnd = stored === undefined ? 0 : stored.offset + stored.length;
  const inRows = outputs.store.rowsEnd(record.n, stream, storedEnd);
  // Of a short one the end may be in the rows of last bytes only.
  const isShort = stored === undefined && written <= INLINE_BYTES && inRows < written;
  // The window for readers may hold more than the tenant's storage had room for.
  const kept =
    record.stored === null || written <= INLINE_BYTES ? inRows : Math.min(inRows, record.stored[stream]);
  const bytes = isShort ? log.wholeStream(stream).length : kept;
  const envelope = record.receiptSeq === null ? undefined : store.receipt(record.receiptSeq);
  const read = envelope === undefined ? undefined : readEnvelope(envelope);
  const signed = read?.ok === true ? read.value.receipt[stream] : undefined;
  return {
    totalBytes: Math.max(written, bytes),
    bytes,
    sha256: signed?.bytes === bytes ? signed.sha256 : null,
  };
}

function writtenBytes({ stdoutBytes, stderrBytes }: ExecutionRecord, stream: StreamName): number {
  return stream === 'stdout' ? stdoutBytes : stderrBytes;
}

/** Undefined where there is nothing: it went since the extent was told. */
export function outputAt(
  { logs, outputs }: SessionRuntime,
  record: ExecutionRecord,
  { stream, at }: { stream: StreamName; at: number },
): OutputAt | undefined {
  const chunk = outputs.store
    .chunks(record.n, stream)
    .find(({ offset, length }) => offset <= at && at < offset + length);
  if (chunk !== undefined) return { chunk };
  const [row] = outputs.store.rows(record.n, stream, { from: at, maxBytes: MOST_BYTES });
  if (row !== undefined) return { bytes: row.bytes };
  const log = isTerminal(record.status) ? logs.ofEnded(record) : logs.of(record);
  const whole = log.wholeStream(stream).subarray(at, at + MOST_BYTES);
  return whole.length === 0 ? undefined : { bytes: whole };
}
