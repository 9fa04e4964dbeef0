/** The sources of a tenant's tools: register, replace, show, ask anew and remove them. */
import * as z from 'zod';
import { success } from '../../shared/errors.ts';
import {
  CreatedSourceSchema,
  type RegisterSource,
  RegisterSourceSchema,
  ToolSourceListSchema,
  ToolSourceSchema,
} from '../../shared/tool-source.ts';
import { notFound } from '../calls/own-session.ts';
import { failureIn } from '../calls/session-stream.ts';
import { requireScopes } from '../middleware/authentication.ts';
import { checkValue, invalid } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import type { StoredSource } from '../objects/catalogue/port.ts';
import { catalogueCalls, catalogueChanges, SAFE, sourceCalls, UNSAFE } from '../objects/object-calls.ts';
import { ARCHIVE_OWNER_HEADER, archiveFault } from '../objects/source/archive.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';
import { kindScopes, sourceFault } from '../sources/registration.ts';
import { type OpenedSource, openedSource, putSourceOf } from '../sources/shown.ts';
import { knownTools } from '../tools/known-tools.ts';

const PATH = '/v1/tool_sources';
const TAR_MEDIA_TYPE = 'application/x-tar';
const WRITE = { kind: 'tenant', scopes: ['tools:write'] } as const;

const createSource = defineRoute({
  method: 'POST',
  path: PATH,
  operationId: 'createToolSource',
  summary: 'Register a source of tools; its tools are there when its status is `ready`',
  access: WRITE,
  body: RegisterSourceSchema,
  answers: {
    201: {
      description: 'Registered; it is asked for its tools now',
      content: { 'application/json': CreatedSourceSchema },
      headers: ['Location'],
    },
  },
  errors: ['source_exists', 'quota_exceeded'],
  handle: async (exchange, { body }) => {
    const { source, webhookSecret } = await put(exchange, body, 'create');
    return reply(201, withSecret(source, webhookSecret), { Location: `${PATH}/${body.name}` });
  },
});

const replaceSource = defineRoute({
  method: 'PUT',
  path: `${PATH}/{name}`,
  operationId: 'replaceToolSource',
  summary: 'Put a source in the place of the one with this name, also to disable or enable it',
  access: WRITE,
  body: z.looseObject({}),
  answers: {
    200: { description: 'Replaced', content: { 'application/json': CreatedSourceSchema } },
    201: { description: 'Registered', content: { 'application/json': CreatedSourceSchema } },
  },
  errors: ['quota_exceeded'],
  handle: async (exchange, { params, body }) => {
    const given = checkValue({ name: params.name, ...body }, RegisterSourceSchema, 'body');
    if (given.name !== params.name) throw invalid([{ path: 'body.name', expected: 'the name in the path' }]);
    const { source, webhookSecret, isNew } = await put(exchange, given, 'replace');
    return reply(isNew ? 201 : 200, withSecret(source, webhookSecret));
  },
});

const listSources = defineRoute({
  method: 'GET',
  path: PATH,
  operationId: 'listToolSources',
  summary: 'The sources of the tenant, by name, each with its status and last error',
  access: WRITE,
  answers: { 200: { description: 'All of them', content: { 'application/json': ToolSourceListSchema } } },
  errors: [],
  handle: async (exchange) => {
    const sources = unwrap(await calls(exchange)((stub) => stub.listSources(), SAFE));
    return reply(200, { sources });
  },
});

const getSource = defineRoute({
  method: 'GET',
  path: `${PATH}/{name}`,
  operationId: 'getToolSource',
  summary: 'A source with its status; secrets by name only',
  access: WRITE,
  answers: { 200: { description: 'The source', content: { 'application/json': ToolSourceSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params }) => reply(200, (await stored(exchange, params.name)).source),
});

const refreshSource = defineRoute({
  method: 'POST',
  path: `${PATH}/{name}/refresh`,
  operationId: 'refreshToolSource',
  summary: 'Ask a source for its tools now; resolves when they are there, or it is known why not',
  access: WRITE,
  answers: { 200: { description: 'The source', content: { 'application/json': ToolSourceSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    await stored(exchange, params.name);
    unwrap(await object(exchange, params.name)((stub, owner) => stub.refresh(owner), SAFE));
    return reply(200, (await stored(exchange, params.name)).source);
  },
});

const removeSource = defineRoute({
  method: 'DELETE',
  path: `${PATH}/{name}`,
  operationId: 'removeToolSource',
  summary: 'Remove a source with all its tools',
  access: WRITE,
  answers: { 204: { description: 'Removed' } },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const { tenant } = exchange.principal;
    unwrap(await catalogueChanges(exchange.env, tenant)((stub) => stub.removeSource(params.name), UNSAFE));
    unwrap(await object(exchange, params.name)((stub, owner) => stub.removed(owner), SAFE));
    return emptyReply();
  },
});

const putArchive = defineRoute({
  method: 'PUT',
  path: `${PATH}/{name}/archive`,
  operationId: 'writeToolSourceArchive',
  summary:
    'Files that are in /workspace before the server of an `mcp_stdio` source starts, as a tar archive; an empty one takes them away. The server is started again',
  access: WRITE,
  streamed: { mediaType: TAR_MEDIA_TYPE },
  answers: {
    200: { description: 'Kept', content: { 'application/json': z.object({ bytes: z.int() }) } },
  },
  errors: ['not_found', 'payload_too_large', 'unsupported_media_type', 'transfer_failed'],
  handle: async (exchange, { params }) => {
    const { source } = await stored(exchange, params.name);
    requireScopes(exchange.principal, ['tools:write', ...kindScopes(source)], exchange.configuration);
    if (source.kind !== 'mcp_stdio')
      throw invalid([{ path: 'name', expected: 'a source of the kind mcp_stdio' }]);
    const refused = archiveFault(source);
    if (refused !== undefined) return unwrap(refused);
    const owner = { tenant: exchange.principal.tenant, source: params.name };
    const headers = { [ARCHIVE_OWNER_HEADER]: JSON.stringify(owner) };
    const { body } = exchange.request;
    const kept = await sourceCalls(exchange.env, owner)(async (stub) => {
      const response = await stub.fetch(
        new Request('https://source/archive', { method: 'PUT', headers, body }),
      );
      return response.ok
        ? success(z.object({ bytes: z.int() }).parse(await response.json()))
        : failureIn(response);
    }, UNSAFE);
    return reply(200, unwrap(kept));
  },
});

async function put(exchange: Exchange<'tenant'>, given: RegisterSource, mode: 'create' | 'replace') {
  const { principal, configuration } = exchange;
  requireScopes(principal, ['tools:write', ...kindScopes(given)], configuration);
  const known = mode === 'create' ? undefined : await opened(exchange, given.name);
  const fault = sourceFault(given, { configuration, known });
  if (fault !== undefined) throw invalid([{ ...fault, path: `body.${fault.path}` }]);
  const { put: input, webhookSecret } = await putSourceOf(given, {
    configuration,
    tenant: principal.tenant,
    rights: [...principal.scopes],
    known,
  });
  const { source, isNew } = unwrap(
    await calls(exchange)((stub) => stub.putSource({ ...input, mode }), UNSAFE),
  );
  unwrap(await object(exchange, source.name)((stub, owner) => stub.changed(owner), SAFE));
  return { source, isNew, webhookSecret };
}

function withSecret(source: z.infer<typeof ToolSourceSchema>, webhookSecret: string | undefined) {
  return webhookSecret === undefined ? source : { ...source, webhook_secret: webhookSecret };
}

async function opened(exchange: Exchange<'tenant'>, name: string): Promise<OpenedSource | undefined> {
  const found = await calls(exchange)((stub) => stub.getSource(name), SAFE);
  if (!found.ok) return undefined;
  return openedSource(found.value, exchange.configuration, exchange.principal.tenant);
}

async function stored(exchange: Exchange<'tenant'>, name: string): Promise<StoredSource> {
  const found = await calls(exchange)((stub) => stub.getSource(name), SAFE);
  if (!found.ok && found.code === 'not_found') throw notFound(found.detail);
  return unwrap(found);
}

function calls(exchange: Exchange<'tenant'>) {
  return catalogueCalls(exchange.env, exchange.principal.tenant);
}

/** What it is told or asked may change the tools of the tenant. */
function object(exchange: Exchange<'tenant'>, source: string) {
  const owner = { tenant: exchange.principal.tenant, source };
  const ask = sourceCalls(exchange.env, owner);
  return <T>(
    method: (stub: Parameters<Parameters<typeof ask>[0]>[0], of: typeof owner) => ReturnType<typeof ask<T>>,
    about: { safe: boolean },
  ) => ask<T>((stub) => method(stub, owner), about).finally(() => knownTools.forget(owner.tenant));
}

export const toolSourceRoutes = [
  createSource,
  replaceSource,
  listSources,
  getSource,
  refreshSource,
  removeSource,
  putArchive,
];
