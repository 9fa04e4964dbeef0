/** What operators did: one entry an act, written before it is done. */
import * as z from 'zod';

export const AuditEntrySchema = z.object({
  n: z.int().describe('Position in the log, from 1 without gaps.'),
  at: z.iso.datetime(),
  actor: z.string().describe("Who: `operator:` and the first digits of the token's digest."),
  request_id: z.string(),
  operation: z.string().describe('`operationId` of the route.'),
  target: z.record(z.string(), z.string()).describe('Parameters of the path.'),
  body: z.string().nullable().describe('The request as JSON, or its digest where it is long.'),
  status: z
    .int()
    .nullable()
    .describe('Status of the answer; null: the act has not ended, or its end was not seen.'),
  code: z.string().nullable().describe('Why it was refused.'),
});
export type AuditEntry = z.infer<typeof AuditEntrySchema>;

export const AuditPageSchema = z.object({
  entries: z.array(AuditEntrySchema),
  next_cursor: z.string().nullable(),
});
