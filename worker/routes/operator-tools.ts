/** The operator's tools for all tenants: each tenant lists, finds and calls them by its scopes, as its own. */
import * as z from 'zod';
import { RegisteredToolSchema, RegisterToolSchema } from '../../shared/registered-tool.ts';
import { checkValue, invalid } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SHARED } from '../objects/catalogue/shared-name.ts';
import { catalogueCalls, SAFE, UNSAFE } from '../objects/object-calls.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';
import { cursorOf, nameInCursor } from '../tools/list.ts';
import { wholeTool } from '../tools/registration.ts';

const PATH = '/v1/operator/tools';
const OPERATOR = { kind: 'operator' } as const;

const createSharedTool = defineRoute({
  method: 'POST',
  path: PATH,
  operationId: 'registerSharedTool',
  summary: 'Register a tool for all tenants, or a new version of one; they see it within half a minute',
  access: OPERATOR,
  body: RegisterToolSchema,
  answers: {
    201: { description: 'Registered', content: { 'application/json': RegisteredToolSchema } },
  },
  errors: ['tool_exists', 'quota_exceeded'],
  handle: async (exchange, { body }) => {
    const put = { ...(await whole(exchange, body)), mode: 'create' as const };
    return reply(201, unwrap(await calls(exchange)((stub) => stub.put(put), SAFE)).tool);
  },
});

const replaceSharedTool = defineRoute({
  method: 'PUT',
  path: `${PATH}/{name}`,
  operationId: 'replaceSharedTool',
  summary: 'Put a tool for all tenants in the place of the one with this name, also to disable or enable it',
  access: OPERATOR,
  body: z.looseObject({}),
  answers: {
    200: { description: 'Replaced', content: { 'application/json': RegisteredToolSchema } },
    201: { description: 'Registered', content: { 'application/json': RegisteredToolSchema } },
  },
  errors: ['quota_exceeded'],
  handle: async (exchange, { params, body }) => {
    const tool = checkValue({ name: params.name, ...body }, RegisterToolSchema, 'body');
    if (tool.name !== params.name) throw invalid([{ path: 'body.name', expected: 'the name in the path' }]);
    const put = { ...(await whole(exchange, tool)), mode: 'replace' as const };
    const stored = unwrap(await calls(exchange)((stub) => stub.put(put), SAFE));
    return reply(stored.isNew ? 201 : 200, stored.tool);
  },
});

const PAGE_LIMITS = { default: 100, max: 500 } as const;
/** Definitions may be large. */
const MAX_PAGE_CHARACTERS = 768 * 1024;

export const SharedToolListSchema = z.object({
  tools: z.array(RegisteredToolSchema),
  next_cursor: z.string().nullable(),
});

const listSharedTools = defineRoute({
  method: 'GET',
  path: PATH,
  operationId: 'listSharedTools',
  summary: 'The tools for all tenants by name, also those that are broken or disabled',
  access: OPERATOR,
  query: z.strictObject({
    limit: z.coerce.number().int().min(1).max(PAGE_LIMITS.max).default(PAGE_LIMITS.default),
    cursor: z.string().min(1).max(512).optional().describe('`next_cursor` of the answer before.'),
  }),
  answers: { 200: { description: 'A page', content: { 'application/json': SharedToolListSchema } } },
  errors: [],
  handle: async (exchange, { query }) => {
    const after = query.cursor === undefined ? null : nameInCursor(query.cursor);
    const page = { after, limit: query.limit, maxCharacters: MAX_PAGE_CHARACTERS };
    const { tools, next } = unwrap(await calls(exchange)((stub) => stub.listAll(page), SAFE));
    return reply(200, { tools, next_cursor: next === null ? null : cursorOf(next) });
  },
});

const getSharedTool = defineRoute({
  method: 'GET',
  path: `${PATH}/{name}`,
  operationId: 'getSharedTool',
  summary: 'A tool for all tenants with its state; credentials by name only',
  access: OPERATOR,
  answers: { 200: { description: 'The tool', content: { 'application/json': RegisteredToolSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params }) =>
    reply(200, unwrap(await calls(exchange)((stub) => stub.get(params.name, null), SAFE))),
});

const removeSharedTool = defineRoute({
  method: 'DELETE',
  path: `${PATH}/{name}`,
  operationId: 'removeSharedTool',
  summary: 'Remove a tool for all tenants; theirs is gone within half a minute',
  access: OPERATOR,
  answers: { 204: { description: 'Removed' } },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    unwrap(await calls(exchange)((stub) => stub.remove(params.name), UNSAFE));
    return emptyReply();
  },
});

function whole({ configuration }: Exchange<'operator'>, tool: z.infer<typeof RegisterToolSchema>) {
  return wholeTool(tool, { configuration, tenant: SHARED });
}

function calls({ env }: Exchange<'operator'>) {
  return catalogueCalls(env, SHARED);
}

export const operatorToolRoutes = [
  listSharedTools,
  createSharedTool,
  replaceSharedTool,
  getSharedTool,
  removeSharedTool,
];
