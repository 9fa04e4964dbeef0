/** Calls of tools that somebody else has to approve: how they wait, and how they are decided. */
import * as z from 'zod';
import { ExecutionIdSchema, SessionIdSchema } from './ids.ts';

/** A call that nobody decided about is refused after this. */
export const APPROVAL_LIFETIME_MS = 24 * 3_600_000;
/** How long a decided one can still be seen. */
export const APPROVAL_MEMORY_MS = 7 * 24 * 3_600_000;
export const MAX_WAITING_APPROVALS = 500;
export const MAX_WAITING_APPROVALS_OF_A_SUBJECT = 50;
/** Somebody has to read them. */
export const MAX_APPROVAL_ARGUMENTS_BYTES = 64 * 1024;

export const ApprovalStatusSchema = z.enum(['waiting', 'approved', 'denied', 'expired', 'cancelled']);
export type ApprovalStatus = z.infer<typeof ApprovalStatusSchema>;

/** Of an execution that waited, or waits. */
export const ApprovalSchema = z.object({
  status: ApprovalStatusSchema,
  requested_at: z.iso.datetime(),
  expires_at: z.iso.datetime(),
  decided_at: z.iso.datetime().nullable(),
  decided_by: z.string().nullable().describe('The subject who decided.'),
  reason: z.string().nullable().describe('What they said.'),
});
export type Approval = z.infer<typeof ApprovalSchema>;

/** As who decides sees it. */
export const ApprovalRequestSchema = ApprovalSchema.extend({
  execution_id: ExecutionIdSchema,
  session_id: SessionIdSchema,
  tool_name: z.string(),
  tool_version: z.string(),
  arguments: z.record(z.string(), z.unknown()),
  timeout_ms: z.int(),
  requested_by: z.string(),
});
export type ApprovalRequest = z.infer<typeof ApprovalRequestSchema>;

export const ApprovalListSchema = z.object({ approvals: z.array(ApprovalRequestSchema) });

export const DecisionSchema = z.strictObject({
  decision: z.enum(['approve', 'deny']),
  reason: z.string().max(2_000).optional().describe('Shown to who made the call.'),
});
export type Decision = z.infer<typeof DecisionSchema>;
