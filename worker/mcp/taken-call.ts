/** A call that was taken in: where it is found again, and how its answer reads. */
import * as z from 'zod';
import { SessionIdSchema } from '../../shared/ids.ts';

export const TakenCallSchema = z.strictObject({
  sessionId: SessionIdSchema,
  executionId: z.string(),
  /** The tool whose scope it needs; null for a program. */
  tool: z.strictObject({ name: z.string(), digest: z.string().nullable() }).nullable(),
  /** The execution as data, what its tool gives as data, or the program. */
  form: z.enum(['execution', 'structured', 'program']),
  /** Whether its session ends with it. */
  ownSession: z.boolean(),
  /** Whether no host runs it. */
  atEdge: z.boolean(),
});
export type TakenCall = z.infer<typeof TakenCallSchema>;
