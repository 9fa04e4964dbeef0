/** Enrolment tokens: `enr_<pool>.<256 random bits>`. The pool in it only says which object to ask. */
import { toBase64Url } from '../../../shared/encoding.ts';

const SECRET_BYTES = 32;

export function newEnrollmentToken(pool: string): string {
  return `enr_${pool}.${toBase64Url(crypto.getRandomValues(new Uint8Array(SECRET_BYTES)))}`;
}

export function poolOfEnrollmentToken(token: string): string | undefined {
  return /^enr_([a-z0-9][a-z0-9-]{0,62})\.[A-Za-z0-9_-]{43}$/.exec(token)?.[1];
}
