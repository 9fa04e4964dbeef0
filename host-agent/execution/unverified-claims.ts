/** What a grant says of itself without having proved it: only to name, in a refusal, what was refused. */
import { decodeJwt } from 'jose';
import * as z from 'zod';
import { ExecutionIdSchema } from '../../shared/ids.ts';

const NamedGrantSchema = z.object({
  act: z.string().max(16).nullable().catch(null),
  exec: ExecutionIdSchema.nullable().catch(null),
  jti: z.string().max(64).nullable().catch(null),
});
export type NamedGrant = z.infer<typeof NamedGrantSchema>;

export function unverifiedClaims(token: string): unknown {
  try {
    return decodeJwt(token);
  } catch {
    return undefined;
  }
}

export function namedGrant(token: string): NamedGrant {
  return NamedGrantSchema.safeParse(unverifiedClaims(token)).data ?? { act: null, exec: null, jti: null };
}
