/** One socket of the control link. What is kept in its attachment survives hibernation. */
import * as z from 'zod';
import { HostIdentitySchema } from '../../links/identity.ts';

const AttachmentSchema = HostIdentitySchema.extend({
  phase: z.enum(['challenged', 'proved', 'linked', 'refused']),
  nonce: z.string(),
  /** Of this connection; 0 until it is linked. */
  epoch: z.int(),
  linkedAtMs: z.number(),
  /** What the host and this edge both speak. */
  protocol: z.int().default(1),
  /** What the pool was told last. */
  reported: z.object({
    atMs: z.number(),
    sandboxes: z.int(),
    capacity: z.int(),
    degraded: z.boolean(),
    skewed: z.boolean().default(false),
  }),
});
export type ControlSocketState = z.infer<typeof AttachmentSchema>;

export const NOTHING_REPORTED = {
  atMs: 0,
  sandboxes: 0,
  capacity: 0,
  degraded: false,
  skewed: false,
} as const;

export function readSocket(socket: WebSocket): ControlSocketState | undefined {
  return AttachmentSchema.safeParse(socket.deserializeAttachment()).data;
}

export function writeSocket(socket: WebSocket, state: ControlSocketState): void {
  socket.serializeAttachment(state);
}
