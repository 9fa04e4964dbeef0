/** What a token says without having proved it: only to name, in a refusal, what was refused. */
import { decodeJwt } from 'jose';

export function unverifiedClaims(token: string): unknown {
  try {
    return decodeJwt(token);
  } catch {
    return undefined;
  }
}
