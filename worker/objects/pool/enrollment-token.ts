/**
 * Enrolment tokens: `enr_<pool>.<256 random bits><tag>`. The tag says that this edge made it for this pool, so a token that
 * somebody invented wakes no object; whether it is known, unused and in time only the pool's object can say.
 */
import { toBase64Url, utf8 } from '../../../shared/encoding.ts';
import { constantTimeEqual } from '../../../shared/ids.ts';

const SECRET_BYTES = 32;
const TAG_BYTES = 16;
const TOKEN = /^enr_([a-z0-9][a-z0-9-]{0,62})\.([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{22})$/;

export async function newEnrollmentToken(tagKey: CryptoKey, pool: string): Promise<string> {
  const secret = toBase64Url(crypto.getRandomValues(new Uint8Array(SECRET_BYTES)));
  return `enr_${pool}.${secret}${await tagOf(tagKey, pool, secret)}`;
}

/** The pool of a token that this edge made. */
export async function poolOfEnrollmentToken(tagKey: CryptoKey, token: string): Promise<string | undefined> {
  const [, pool, secret, tag] = TOKEN.exec(token) ?? [];
  if (pool === undefined || secret === undefined || tag === undefined) return undefined;
  return constantTimeEqual(await tagOf(tagKey, pool, secret), tag) ? pool : undefined;
}

async function tagOf(tagKey: CryptoKey, pool: string, secret: string): Promise<string> {
  const mac = await crypto.subtle.sign('HMAC', tagKey, utf8(`enrolment-token\n${pool}\n${secret}`));
  return toBase64Url(new Uint8Array(mac).subarray(0, TAG_BYTES));
}
