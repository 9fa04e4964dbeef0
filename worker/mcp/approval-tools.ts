/** Tools for who approves calls of others: what waits, and the decision. */
import * as z from 'zod';
import {
  ApprovalListSchema,
  ApprovalSchema,
  ApprovalStatusSchema,
  DecisionSchema,
} from '../../shared/approval.ts';
import { ExecutionIdSchema } from '../../shared/ids.ts';
import { mcpTool } from '../formats/mcp.ts';
import { withoutAbsent } from '../formats/nulls.ts';
import { checkValue } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { approvalCalls, SAFE, UNSAFE } from '../objects/object-calls.ts';
import type { McpServerTool } from './tool.ts';
import { jsonSchemaOf } from './tool-schema.ts';

export const APPROVAL_TOOLS_SCOPE = 'tools:approve';

const ListArgumentsSchema = z.strictObject({
  status: ApprovalStatusSchema.default('waiting'),
  limit: z.int().min(1).max(50).default(20),
});
const DecideArgumentsSchema = DecisionSchema.extend({
  execution_id: ExecutionIdSchema.describe('From list_approvals.'),
});
const DecidedSchema = z.object({ execution_id: ExecutionIdSchema, approval: ApprovalSchema });

const listInput = jsonSchemaOf(ListArgumentsSchema, 'input');
const decideInput = jsonSchemaOf(DecideArgumentsSchema, 'input');

const listApprovals: McpServerTool = {
  listed: {
    ...mcpTool(
      {
        name: 'list_approvals',
        title: 'List calls to approve',
        description:
          'The calls of your tenant that wait for an approval, the newest first: tool, arguments, session and who asks. Decide about one with decide_approval.',
        category: 'approvals',
        inputSchema: listInput,
        effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
      },
      'list_approvals',
    ),
    outputSchema: { ...jsonSchemaOf(ApprovalListSchema, 'output'), type: 'object' },
  },
  call: async (given, { exchange }) => {
    const filter = checkValue(withoutAbsent(given, listInput), ListArgumentsSchema, 'arguments');
    const approvals = unwrap(
      await approvalCalls(exchange.env, exchange.principal.tenant)((stub) => stub.list(filter), SAFE),
    );
    const lines = approvals.map((approval) => JSON.stringify(approval));
    const text = lines.length === 0 ? `no call is ${filter.status}` : lines.join('\n');
    return { content: [{ type: 'text', text }], structuredContent: { approvals } };
  },
};

const decideApproval: McpServerTool = {
  listed: {
    ...mcpTool(
      {
        name: 'decide_approval',
        title: 'Approve or deny a call',
        description:
          'Approve a waiting call, which is then made as its caller, or deny it with a reason that its caller sees. Once, and never a call of your own.',
        category: 'approvals',
        inputSchema: decideInput,
        effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
      },
      'decide_approval',
    ),
    outputSchema: { ...jsonSchemaOf(DecidedSchema, 'output'), type: 'object' },
  },
  call: async (given, { exchange }) => {
    const args = checkValue(withoutAbsent(given, decideInput), DecideArgumentsSchema, 'arguments');
    const { execution_id, ...decision } = args;
    const { tenant, subject } = exchange.principal;
    const decided = unwrap(
      await approvalCalls(exchange.env, tenant)(
        (stub) => stub.decide(subject, execution_id, decision),
        UNSAFE,
      ),
    );
    const content = DecidedSchema.parse(decided);
    const text = `${execution_id} is ${content.approval.status}`;
    return { content: [{ type: 'text', text }], structuredContent: { ...content } };
  },
};

export const approvalTools: readonly McpServerTool[] = [decideApproval, listApprovals];
