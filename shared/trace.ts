/**
 * Traces (W3C Trace Context). A request id is 128 bits, as a trace id is: a request of a trace has the trace's id as its
 * own, in the spelling of request ids, so that one name is carried through the edge to the host.
 */
import { fromBase64Url, toBase64Url } from './encoding.ts';

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$/;
const NO_TRACE = '0'.repeat(32);
const NO_SPAN = '0'.repeat(16);
const REQUEST_ID = /^req_([A-Za-z0-9_-]{22})$/;

/** The request id of the trace that the header names; undefined where it names none. */
export function requestIdOfTrace(traceparent: string): string | undefined {
  const [, version, traceId, spanId, more] = TRACEPARENT.exec(traceparent) ?? [];
  if (version === undefined || traceId === undefined || version === 'ff') return undefined;
  // Later versions may add fields; this one has none.
  if (version === '00' && more !== undefined) return undefined;
  if (traceId === NO_TRACE || spanId === NO_SPAN) return undefined;
  const bytes = Uint8Array.from({ length: 16 }, (_, at) =>
    Number.parseInt(traceId.slice(2 * at, 2 * at + 2), 16),
  );
  return `req_${toBase64Url(bytes)}`;
}

/** Undefined for what is no request id of ours. */
export function traceIdOf(requestId: string): string | undefined {
  const bytes = fromBase64Url(REQUEST_ID.exec(requestId)?.[1] ?? '');
  if (bytes?.length !== 16) return undefined;
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
