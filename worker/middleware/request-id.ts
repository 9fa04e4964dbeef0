/** The id of a request: of its trace, what its client says, or a new one. */
import { newId } from '../../shared/ids.ts';
import { requestIdOfTrace } from '../../shared/trace.ts';

export const REQUEST_ID_HEADER = 'Request-Id';
const REQUEST_ID = /^req_[A-Za-z0-9_-]{22}$/;

export function requestIdOf(headers: Headers): string {
  const ofTrace = requestIdOfTrace(headers.get('traceparent') ?? '');
  if (ofTrace !== undefined) return ofTrace;
  const given = headers.get(REQUEST_ID_HEADER);
  return given !== null && REQUEST_ID.test(given) ? given : newId('req');
}
