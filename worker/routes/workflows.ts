/** Workflows: start, read, cancel. */
import type { Violation } from '../../shared/errors.ts';
import { isWorkflowIdOf, newWorkflowId } from '../../shared/ids.ts';
import { BUILT_IN_TOOLS, ToolNameSchema } from '../../shared/tool.ts';
import { type CreateWorkflow, CreateWorkflowSchema, WorkflowSchema } from '../../shared/workflow.ts';
import { ownerOf } from '../engine/owner.ts';
import { invalid } from '../middleware/body.ts';
import { idempotencyOf } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { mayUse } from '../tools/policy.ts';
import { resolveCall, storedTools } from '../tools/resolve-call.ts';
import { graphViolations } from '../workflows/graph.ts';
import { referencesIn } from '../workflows/references.ts';
import { TOOL_SCOPES } from './execute.ts';
import { SAFE, workflowCalls } from './object-calls.ts';
import { callerOf, notFound } from './own-session.ts';
import { reply } from './reply.ts';
import { reservedId } from './reserved-id.ts';
import { defineRoute, type Exchange } from './route.ts';
import { IDEMPOTENCY_HEADER_DOC } from './sessions.ts';

const createWorkflow = defineRoute({
  method: 'POST',
  path: '/v1/workflows',
  operationId: 'createWorkflow',
  summary: 'Start a graph of tool calls; it goes on without the caller',
  access: { kind: 'tenant', scopes: ['sessions:write'], anyScope: TOOL_SCOPES },
  headers: IDEMPOTENCY_HEADER_DOC,
  body: CreateWorkflowSchema,
  answers: {
    202: {
      description: 'It runs; `Location` is where it can be read',
      content: { 'application/json': WorkflowSchema },
      headers: ['Location'],
    },
  },
  errors: [
    'tool_not_found',
    'tool_unavailable',
    'approval_required',
    'idempotency_conflict',
    'idempotency_in_progress',
    'session_deleted',
  ],
  handle: async (exchange, { body, raw }) => {
    const violations = [...graphViolations(body), ...(await toolViolations(exchange, body))];
    if (violations.length > 0) throw invalid(violations);
    const idempotency = await idempotencyOf({
      header: exchange.request.headers.get('Idempotency-Key'),
      route: 'POST /v1/workflows',
      subject: exchange.principal.subject,
      body: raw.bytes,
    });
    const { tagKey } = exchange.configuration;
    const fresh = await newWorkflowId(tagKey, exchange.principal.tenant);
    const workflowId = await reservedId(exchange, idempotency, fresh);
    const calls = workflowCalls(exchange.env, exchange.principal.tenant, workflowId);
    const plan = {
      workflowId,
      owner: ownerOf(exchange.principal),
      definition: body,
      endsBy: exchange.receivedMs + body.timeout_s * 1_000,
    };
    const started = await calls((stub) => stub.start(plan), SAFE);
    return reply(202, unwrap(started), { Location: `/v1/workflows/${workflowId}` });
  },
});

/** Calls whose arguments are all there are checked like any call; of the others at least the tool. */
async function toolViolations(exchange: Exchange<'tenant'>, { tasks }: CreateWorkflow): Promise<Violation[]> {
  const violations: Violation[] = [];
  const names = Object.values(tasks).map(({ tool_name }) => tool_name);
  const registered = [...new Set(names)].filter((name) => !ToolNameSchema.safeParse(name).success);
  const stored = new Map(
    (await storedTools(exchange, registered, 'name')).map(({ tool }) => [tool.name, tool]),
  );
  for (const [name, task] of Object.entries(tasks)) {
    const root = `body.tasks.${name}.`;
    const builtIn = ToolNameSchema.safeParse(task.tool_name);
    const tool = stored.get(task.tool_name);
    const guard = builtIn.success
      ? { requiredScopes: [BUILT_IN_TOOLS[builtIn.data].scope], category: '' }
      : tool && { requiredScopes: tool.required_scopes, category: tool.category };
    if (guard === undefined || !mayUse(exchange.principal, guard)) {
      violations.push({
        path: `${root}tool_name`,
        expected: 'a tool that you may call',
        received: task.tool_name,
      });
      continue;
    }
    const effects = tool?.side_effects ?? ['write'];
    if (task.retries !== undefined && !effects.includes('read') && !effects.includes('idempotent')) {
      violations.push({
        path: `${root}retries`,
        expected: 'a tool that says it is `read` or `idempotent`, or none',
        received: task.tool_name,
      });
    }
    if (referencesIn(task.arguments).length === 0) await resolveCall(exchange, task, { root });
  }
  return violations;
}

const getWorkflow = defineRoute({
  method: 'GET',
  path: '/v1/workflows/{workflow_id}',
  operationId: 'getWorkflow',
  summary: 'How a workflow stands',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  answers: { 200: { description: 'The workflow', content: { 'application/json': WorkflowSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const calls = await ownWorkflow(exchange, params.workflow_id);
    return reply(200, unwrap(await calls((stub) => stub.describe(callerOf(exchange)), SAFE)));
  },
});

const cancelWorkflow = defineRoute({
  method: 'POST',
  path: '/v1/workflows/{workflow_id}/cancel',
  operationId: 'cancelWorkflow',
  summary: 'Stop a workflow and what it runs; one that has ended stays as it is',
  access: { kind: 'tenant', scopes: ['sessions:write'] },
  answers: { 200: { description: 'The workflow', content: { 'application/json': WorkflowSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const calls = await ownWorkflow(exchange, params.workflow_id);
    return reply(200, unwrap(await calls((stub) => stub.cancel(callerOf(exchange)), SAFE)));
  },
});

async function ownWorkflow(exchange: Exchange<'tenant'>, workflowId: string) {
  const { tenant } = exchange.principal;
  if (!(await isWorkflowIdOf(exchange.configuration.tagKey, tenant, workflowId))) {
    throw notFound('no such workflow, or not yours');
  }
  return workflowCalls(exchange.env, tenant, workflowId);
}

export const workflowRoutes = [createWorkflow, getWorkflow, cancelWorkflow];
