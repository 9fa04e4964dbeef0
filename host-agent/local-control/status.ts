/** What a running agent says of itself to the operator of its machine. */
import * as z from 'zod';
import { HostIdSchema, ImageDigestSchema } from '../../shared/ids.ts';

/** In the agent's state folder, which only root may enter. */
export const SOCKET_NAME = 'agent.sock';

export const AgentStatusSchema = z.strictObject({
  pid: z.int().min(1),
  agent_version: z.string(),
  uptime_s: z.int().min(0),
  /** `starting`: not enrolled yet, or still cleaning up. `running` says nothing of the edge: see `edge_connected`. */
  state: z.enum(['starting', 'running', 'draining', 'stopping']),
  host_id: HostIdSchema.nullable(),
  edge_url: z.string(),
  edge_connected: z.boolean(),
  /** Why the edge opens no link to this host, in its own words; absent where it does, or did not say. */
  edge_refusal: z.strictObject({ code: z.string(), detail: z.string() }).optional(),
  /** Of this host's clock before the edge's, by the time that the edge told when the control link was last made. */
  clock_ahead_ms: z.int().nullable(),
  /** The disk refuses the journal: no work is taken. */
  degraded: z.boolean(),
  sandboxes: z.int().min(0),
  capacity: z.int().min(0),
  executions: z.int().min(0),
  runsc_version: z.string().nullable(),
  images: z.array(z.strictObject({ name: z.string(), digest: ImageDigestSchema, sandboxes: z.int().min(0) })),
});
export type AgentStatus = z.infer<typeof AgentStatusSchema>;

/** What the operator of the machine does about it; undefined where nothing helps but to wait. */
export function cureOfRefusal({ edge_refusal: refusal }: AgentStatus): string | undefined {
  if (refusal === undefined) return undefined;
  // Its certificate is good no more, and a key that was revoked enrols no more.
  return refusal.code === 'unauthenticated'
    ? 'to come back as another host: remove host/identity.json in the state folder, then sandgate-host enroll <edge URL> <token>'
    : undefined;
}
