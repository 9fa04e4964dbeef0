/** `Idempotency-Key`: which requests are one and the same. */
import { sha256Hex } from '../../shared/digest.ts';
import { concatBytes, utf8 } from '../../shared/encoding.ts';
import { invalid } from './body.ts';

export const IDEMPOTENCY_KEY_HEADER = 'Idempotency-Key';
const KEY = /^[\x21-\x7e]{1,255}$/;

export interface Idempotency {
  /** Hash over route, subject and the caller's key: two subjects never share one. */
  key: string;
  /** Hash over route, subject and body: a key that comes again with another request is a conflict. */
  fingerprint: string;
}

export async function idempotencyOf(request: {
  header: string | null;
  route: string;
  subject: string;
  body: Uint8Array;
}): Promise<Idempotency | null> {
  if (request.header === null) return null;
  if (!KEY.test(request.header)) {
    throw invalid([
      { path: `header.${IDEMPOTENCY_KEY_HEADER}`, expected: '1 to 255 visible ASCII characters' },
    ]);
  }
  const scope = [request.route, request.subject];
  const prefix = utf8(`${JSON.stringify(scope)}\n`);
  return {
    key: await sha256Hex(JSON.stringify([...scope, request.header])),
    fingerprint: await sha256Hex(concatBytes([prefix, request.body])),
  };
}
