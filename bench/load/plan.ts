/** What a process of clients is asked to do, and what it saw. */
import * as z from 'zod';

const TargetSchema = z.object({
  method: z.enum(['GET', 'POST']),
  path: z.string(),
  body: z.string().nullable(),
});
export type Target = z.infer<typeof TargetSchema>;

const GroupSchema = z.object({
  name: z.string(),
  token: z.string(),
  /** Each client keeps to one of them, or goes from one to the next. */
  targets: z.array(TargetSchema).min(1),
  rotates: z.boolean().default(false),
  clients: z.int().min(1),
  /** Null: each client sends the next one when it has an answer. Otherwise requests come whether answers do or not. */
  perSecond: z.number().nullable(),
  /** Whether a client that was refused with `Retry-After` waits as long. */
  waitsAsTold: z.boolean(),
});
export type Group = z.input<typeof GroupSchema>;

export const PlanSchema = z.object({
  url: z.string(),
  groups: z.array(GroupSchema).min(1),
  /** Not counted. */
  warmUpMs: z.number(),
  durationMs: z.number(),
});
export type Plan = z.input<typeof PlanSchema>;

const SeenSchema = z.object({
  name: z.string(),
  sent: z.number(),
  ok: z.number(),
  /** `503` with `Retry-After`. */
  shed: z.number(),
  failed: z.number(),
  okPerS: z.number(),
  /** Of those that were accepted. */
  p50Ms: z.number().nullable(),
  p95Ms: z.number().nullable(),
  /** Of those that were shed. */
  shedP50Ms: z.number().nullable(),
});
export type Seen = z.infer<typeof SeenSchema>;
export const ReportSchema = z.array(SeenSchema);
