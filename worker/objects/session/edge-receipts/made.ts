/** What is known of a call that no host runs when it is made, and kept until it has ended. */
import * as z from 'zod';

/** Times are milliseconds since the epoch. */
export const MadeCallSchema = z.object({
  toolVersion: z.string(),
  argsSha256: z.string(),
  timeoutMs: z.number().nullable(),
  startedAtMs: z.number(),
});
export type MadeCall = z.infer<typeof MadeCallSchema>;
