/** What the Worker has verified of a link before an object wakes, and the internal header that carries it there. */
import * as z from 'zod';
import { HostIdSchema, SessionIdSchema, TenantSchema } from '../../shared/ids.ts';

export const LINK_IDENTITY_HEADER = 'sandgate-link';

export const HostIdentitySchema = z.strictObject({
  hostId: HostIdSchema,
  pool: z.string(),
  publicKeyX: z.string(),
});
export type HostIdentity = z.infer<typeof HostIdentitySchema>;

export const SessionLinkIdentitySchema = HostIdentitySchema.extend({
  tenant: TenantSchema,
  sessionId: SessionIdSchema,
  epoch: z.int().min(1),
});
export type SessionLinkIdentity = z.infer<typeof SessionLinkIdentitySchema>;

/** An upgrade request that carries nothing of the original but what was verified. */
export function internalUpgrade(identity: HostIdentity | SessionLinkIdentity): Request {
  return new Request('https://object/link', {
    headers: { upgrade: 'websocket', [LINK_IDENTITY_HEADER]: JSON.stringify(identity) },
  });
}

/** Parses the internal header; only this Worker can reach an object's `fetch`. */
export function readIdentity<T>(request: Request, schema: z.ZodType<T>): T | undefined {
  const text = request.headers.get(LINK_IDENTITY_HEADER);
  if (text === null) return undefined;
  try {
    return schema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
