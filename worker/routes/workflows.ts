/** Workflows: start, list, read, cancel. */
import * as z from 'zod';
import type { Violation } from '../../shared/errors.ts';
import { isWorkflowIdOf, newWorkflowId } from '../../shared/ids.ts';
import type { RegisteredTool } from '../../shared/registered-tool.ts';
import { ToolNameSchema } from '../../shared/tool.ts';
import {
  type CreateWorkflow,
  CreateWorkflowSchema,
  type TaskProgram,
  WorkflowListSchema,
  WorkflowSchema,
  WorkflowStatusSchema,
  type WorkflowTask,
} from '../../shared/workflow.ts';
import { requireLanguage } from '../calls/begin-program.ts';
import { sealedCallback } from '../calls/callback.ts';
import { callerOf, notFound } from '../calls/own-session.ts';
import { reservedId } from '../calls/reserved-id.ts';
import { ownerOf } from '../engine/owner.ts';
import { invalid } from '../middleware/body.ts';
import { idempotencyOf } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE, tenantCalls, workflowCalls } from '../objects/object-calls.ts';
import { programTools } from '../programs/permitted-tools.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';
import { builtInGuard } from '../tools/catalogue.ts';
import { mayUse } from '../tools/policy.ts';
import { registeredGuard } from '../tools/registered.ts';
import { resolveCall, storedTools } from '../tools/resolve-call.ts';
import { graphViolations } from '../workflows/graph.ts';
import { referencesIn } from '../workflows/references.ts';
import { TOOL_SCOPES } from './execute.ts';
import { LABEL_QUERY, labelsOf } from './label-query.ts';
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
    'policy_refused',
    'tool_not_found',
    'tool_unavailable',
    'approval_required',
    'idempotency_conflict',
    'idempotency_in_progress',
    'session_deleted',
  ],
  handle: async (exchange, { body, raw }) => {
    const violations = [...graphViolations(body), ...(await taskViolations(exchange, body))];
    if (violations.length > 0) throw invalid(violations);
    const idempotency = await idempotencyOf({
      header: exchange.request.headers.get('Idempotency-Key'),
      route: 'POST /v1/workflows',
      subject: exchange.principal.subject,
      body: raw.bytes,
    });
    const { callback: given, ...definition } = body;
    const callback = await sealedCallback(exchange, given, { isDetached: true });
    const { tagKey } = exchange.configuration;
    const fresh = await newWorkflowId(tagKey, exchange.principal.tenant);
    const workflowId = await reservedId(exchange, idempotency, fresh);
    const calls = workflowCalls(exchange.env, exchange.principal.tenant, workflowId);
    const plan = {
      workflowId,
      owner: ownerOf(exchange.principal),
      definition,
      endsBy: exchange.receivedMs + body.timeout_s * 1_000,
      callback,
    };
    const started = await calls((stub) => stub.start(plan), SAFE);
    return reply(202, unwrap(started), { Location: `/v1/workflows/${workflowId}` });
  },
});

/** Calls whose arguments are all there are checked like any call; of the others at least the tool. */
async function taskViolations(exchange: Exchange<'tenant'>, { tasks }: CreateWorkflow): Promise<Violation[]> {
  const violations: Violation[] = [];
  const names = Object.values(tasks).flatMap(({ tool_name }) => tool_name ?? []);
  const registered = [...new Set(names)].filter((name) => !ToolNameSchema.safeParse(name).success);
  const stored = new Map(
    (await storedTools(exchange, registered, 'name')).map(({ tool }) => [tool.name, tool]),
  );
  for (const [name, task] of Object.entries(tasks)) {
    const root = `body.tasks.${name}.`;
    const { program, tool_name } = task;
    if (program !== undefined) {
      violations.push(...(await programViolations(exchange, { ...task, program }, root)));
    } else if (tool_name !== undefined) {
      const call = { ...task, tool_name };
      violations.push(...(await callViolations(exchange, call, { root, tool: stored.get(tool_name) })));
    }
  }
  return violations;
}

async function callViolations(
  exchange: Exchange<'tenant'>,
  task: WorkflowTask & { tool_name: string },
  { root, tool }: { root: string; tool: RegisteredTool | undefined },
): Promise<Violation[]> {
  const builtIn = ToolNameSchema.safeParse(task.tool_name);
  const guard = builtIn.success ? builtInGuard(builtIn.data) : tool && registeredGuard(tool);
  const received = task.tool_name;
  if (guard === undefined || !mayUse(exchange.principal, guard)) {
    return [{ path: `${root}tool_name`, expected: 'a tool that you may call', received }];
  }
  if (referencesIn(task.arguments).length === 0) {
    await resolveCall(exchange, task, { root, approval: 'asked' });
  }
  const effects = tool?.side_effects ?? ['write'];
  if (task.retries === undefined || effects.includes('read') || effects.includes('idempotent')) return [];
  const expected = 'a tool that says it is `read` or `idempotent`, or none';
  return [{ path: `${root}retries`, expected, received }];
}

/** Of a program it is not known whether it may run twice, and its time is one of its limits. */
async function programViolations(
  exchange: Exchange<'tenant'>,
  { program, retries, timeout_ms }: WorkflowTask & { program: TaskProgram },
  root: string,
): Promise<Violation[]> {
  requireLanguage(exchange, program.language);
  await programTools(exchange, program, `${root}program.`);
  const violations: Violation[] = [];
  if (retries !== undefined) violations.push({ path: `${root}retries`, expected: 'none for a program' });
  if (timeout_ms !== undefined) {
    violations.push({ path: `${root}timeout_ms`, expected: 'none for a program: see program.limits' });
  }
  return violations;
}

const ListQuerySchema = z.strictObject({
  limit: z.coerce.number().int().min(1).max(100).default(50).describe('Workflows in one answer.'),
  cursor: z.string().min(1).max(512).optional().describe('`next_cursor` of the answer before.'),
  label: LABEL_QUERY,
  status: WorkflowStatusSchema.optional().describe('Only those that stand so.'),
});

const listWorkflows = defineRoute({
  method: 'GET',
  path: '/v1/workflows',
  operationId: 'listWorkflows',
  summary: 'The workflows of the caller, newest first, all or those with some labels',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  query: ListQuerySchema,
  answers: { 200: { description: 'A page', content: { 'application/json': WorkflowListSchema } } },
  errors: [],
  handle: async ({ env, principal }, { query }) => {
    const { limit, cursor, status } = query;
    const wanted = { subject: principal.subject, limit, cursor, status, labels: labelsOf(query.label) };
    const page = await tenantCalls(env, principal.tenant)((stub) => stub.listWorkflows(wanted), SAFE);
    return reply(200, unwrap(page));
  },
});

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

export const workflowRoutes = [createWorkflow, listWorkflows, getWorkflow, cancelWorkflow];
