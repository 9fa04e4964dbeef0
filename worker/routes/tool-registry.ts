/** The registry of a tenant's tools: register, replace, show and remove them. */
import * as z from 'zod';
import type { Outcome } from '../../shared/errors.ts';
import {
  RegisteredManySchema,
  type RegisteredTool,
  RegisteredToolSchema,
  type RegisterTool,
  RegisterToolSchema,
  RegisterToolsSchema,
  scopesOfKind,
} from '../../shared/registered-tool.ts';
import { requireScopes } from '../middleware/authentication.ts';
import { checkValue, invalid } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { violationsOf } from '../middleware/violations.ts';
import type { PutTool } from '../objects/catalogue/port.ts';
import { catalogueCalls, catalogueChanges, SAFE, UNSAFE } from '../objects/object-calls.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';
import { addressRules } from '../tools/http/address.ts';
import { faultOf, reasonOf } from '../tools/registered.ts';
import { sealedCredentials, type ToolOwner, wholeTool } from '../tools/registration.ts';

const ERRORS_OF_A_PUT = ['source_owned', 'quota_exceeded'] as const;
const WRITE = { kind: 'tenant', scopes: ['tools:write'] } as const;

/** One tool, or many in `tools`. */
const RegistrationSchema = z.union([
  RegisterToolsSchema,
  z.looseObject({ name: z.unknown(), kind: z.unknown() }),
]);

const registerTool = defineRoute({
  method: 'POST',
  path: '/v1/tools',
  operationId: 'registerTool',
  summary: 'Register a tool, or a new version of one; with `tools`, many at once, each marked by itself',
  access: WRITE,
  body: RegistrationSchema,
  answers: {
    200: {
      description: 'The same tool was there already; of many: what became of each',
      content: { 'application/json': z.union([RegisteredManySchema, RegisteredToolSchema]) },
    },
    201: {
      description: 'Registered',
      content: { 'application/json': RegisteredToolSchema },
      headers: ['Location'],
    },
  },
  errors: ['tool_exists', ...ERRORS_OF_A_PUT],
  handle: async (exchange, { body }) => {
    const many = RegisterToolsSchema.safeParse(body);
    if (many.success) return reply(200, await registerMany(exchange, many.data.tools));
    const stored = unwrap(await registerOne(exchange, checkValue(body, RegisterToolSchema, 'body')));
    if (!stored.isNew && stored.tool.versions.length === 1) return reply(200, stored.tool);
    return reply(201, stored.tool, { Location: locationOf(stored.tool.name) });
  },
});

export async function registerOne(
  exchange: Exchange<'tenant'>,
  tool: RegisterTool,
): Promise<Outcome<{ tool: RegisteredTool; isNew: boolean }>> {
  requireOwnRight(exchange, tool);
  const put = { ...(await wholeTool(tool, ownerOf(exchange))), mode: 'create' as const };
  return catalogueChanges(exchange.env, exchange.principal.tenant)((stub) => stub.put(put), SAFE);
}

const replaceTool = defineRoute({
  method: 'PUT',
  path: '/v1/tools/{name}',
  operationId: 'replaceTool',
  summary: 'Put a tool in the place of the one with this name, also to disable or enable it',
  access: WRITE,
  body: z.looseObject({}),
  answers: {
    200: { description: 'Replaced', content: { 'application/json': RegisteredToolSchema } },
    201: { description: 'Registered', content: { 'application/json': RegisteredToolSchema } },
  },
  errors: ERRORS_OF_A_PUT,
  handle: async (exchange, { params, body }) => {
    const tool = checkValue({ name: params.name, ...body }, RegisterToolSchema, 'body');
    if (tool.name !== params.name) throw invalid([{ path: 'body.name', expected: 'the name in the path' }]);
    requireOwnRight(exchange, tool);
    const put = { ...(await wholeTool(tool, ownerOf(exchange))), mode: 'replace' as const };
    const calls = catalogueChanges(exchange.env, exchange.principal.tenant);
    const stored = unwrap(await calls((stub) => stub.put(put), SAFE));
    return reply(stored.isNew ? 201 : 200, stored.tool);
  },
});

const getTool = defineRoute({
  method: 'GET',
  path: '/v1/tools/{name}',
  operationId: 'getTool',
  summary: 'A registered tool with its state; credentials by name only',
  access: WRITE,
  query: z.strictObject({ version: z.string().max(64).optional().describe('A former version of it.') }),
  answers: { 200: { description: 'The tool', content: { 'application/json': RegisteredToolSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params, query }) => {
    const calls = catalogueCalls(exchange.env, exchange.principal.tenant);
    return reply(200, unwrap(await calls((stub) => stub.get(params.name, query.version ?? null), SAFE)));
  },
});

const removeTool = defineRoute({
  method: 'DELETE',
  path: '/v1/tools/{name}',
  operationId: 'removeTool',
  summary: 'Remove a tool with all its versions',
  access: WRITE,
  answers: { 204: { description: 'Removed' } },
  errors: ['not_found', 'source_owned'],
  handle: async (exchange, { params }) => {
    const calls = catalogueChanges(exchange.env, exchange.principal.tenant);
    unwrap(await calls((stub) => stub.remove(params.name), UNSAFE));
    return emptyReply();
  },
});

/** Nobody makes a tool that does for them what they may not do themselves. */
function requireOwnRight(exchange: Exchange<'tenant'>, tool: RegisterTool): void {
  requireScopes(exchange.principal, ['tools:write', ...scopesOfKind(tool)], exchange.configuration);
}

function ownerOf({ configuration, principal }: Exchange<'tenant'>): ToolOwner {
  return { configuration, tenant: principal.tenant };
}

type Entry = z.infer<typeof RegisteredManySchema>['tools'][number];

/** A bad one costs its neighbours nothing: what can be kept is kept as broken, with the reason. */
async function registerMany(
  exchange: Exchange<'tenant'>,
  given: readonly Record<string, unknown>[],
): Promise<z.infer<typeof RegisteredManySchema>> {
  const entries: (Entry | PutTool)[] = [];
  for (const [index, one] of given.entries())
    entries.push(await prepared(exchange, one, `body.tools.${index}`));
  const puts = entries.filter((entry) => 'tool' in entry);
  const calls = catalogueChanges(exchange.env, exchange.principal.tenant);
  const stored = unwrap(await calls((stub) => stub.putMany(puts), SAFE));
  let next = 0;
  return {
    tools: entries.map((entry) => {
      if (!('tool' in entry)) return entry;
      next += 1;
      return stored[next - 1] ?? { name: entry.tool.name, status: 'refused', reason: 'it was not taken' };
    }),
  };
}

async function prepared(
  exchange: Exchange<'tenant'>,
  given: Record<string, unknown>,
  root: string,
): Promise<Entry | PutTool> {
  const parsed = RegisterToolSchema.safeParse(given);
  if (!parsed.success) {
    const [violation] = violationsOf(parsed.error, root);
    const name = typeof given.name === 'string' ? given.name.slice(0, 128) : null;
    return { name, status: 'refused', reason: reasonOf(violation ?? { path: root, expected: 'a tool' }) };
  }
  const tool = parsed.data;
  const missing = scopesOfKind(tool).filter((scope) => !exchange.principal.scopes.has(scope));
  if (missing.length > 0) {
    return { name: tool.name, status: 'refused', reason: `the token lacks ${missing.join(', ')}` };
  }
  const owner = ownerOf(exchange);
  const fault = faultOf(tool, addressRules(owner.configuration));
  return {
    tool,
    credentials: await sealedCredentials(tool, owner),
    fault: fault === undefined ? null : reasonOf(fault),
  };
}

function locationOf(name: string): string {
  return `/v1/tools/${encodeURIComponent(name)}`;
}

export const toolRegistryRoutes = [registerTool, replaceTool, getTool, removeTool];
