/** Calls that wait for an approval, for who decides about them. */
import * as z from 'zod';
import { ApprovalListSchema, ApprovalStatusSchema, DecisionSchema } from '../../shared/approval.ts';
import { ExecutionSchema } from '../../shared/execution.ts';
import { executionIdOf } from '../calls/own-session.ts';
import { unwrap } from '../middleware/refusal.ts';
import { approvalCalls, SAFE, UNSAFE } from '../objects/object-calls.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';

const APPROVE = { kind: 'tenant', scopes: ['tools:approve'] } as const;

const listApprovals = defineRoute({
  method: 'GET',
  path: '/v1/approvals',
  operationId: 'listApprovals',
  summary: 'Calls of the tenant that wait for an approval, or did in the last days, the newest first',
  access: APPROVE,
  query: z.strictObject({
    status: ApprovalStatusSchema.optional(),
    limit: z.coerce.number().int().min(1).max(200).default(50),
  }),
  answers: { 200: { description: 'Calls', content: { 'application/json': ApprovalListSchema } } },
  errors: [],
  handle: async ({ env, principal }, { query }) => {
    const filter = { status: query.status ?? null, limit: query.limit };
    const approvals = unwrap(await approvalCalls(env, principal.tenant)((stub) => stub.list(filter), SAFE));
    return reply(200, { approvals });
  },
});

const decideApproval = defineRoute({
  method: 'POST',
  path: '/v1/executions/{execution_id}/approval',
  operationId: 'decideApproval',
  summary: 'Approve or deny a call that waits; never one of your own',
  access: APPROVE,
  body: DecisionSchema,
  answers: {
    200: { description: 'The execution', content: { 'application/json': ExecutionSchema } },
  },
  errors: ['not_found', 'forbidden', 'approval_decided'],
  handle: async ({ env, principal }, { params, body }) => {
    const executionId = executionIdOf(params.execution_id);
    const decided = await approvalCalls(env, principal.tenant)(
      (stub) => stub.decide(principal.subject, executionId, body),
      UNSAFE,
    );
    return reply(200, unwrap(decided));
  },
});

export const approvalRoutes = [listApprovals, decideApproval];
