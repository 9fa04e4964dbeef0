/** Public documents: what this edge is, which keys it signs with, whom it trusts, and what its routes are. */
import * as z from 'zod';
import { PublicJwkSchema } from '../../shared/ed25519.ts';
import { SCOPES } from '../../shared/scopes.ts';
import type { SigningKey } from '../configuration.ts';
import { MCP_RESOURCE } from '../identity/access-token.ts';
import { DPOP_ALGORITHMS } from '../identity/dpop-proof.ts';
import { AUDIT_OBJECT } from '../middleware/audit.ts';
import { metadataPath } from '../middleware/authentication.ts';
import { callObject } from '../middleware/call-object.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE } from '../objects/object-calls.ts';
import { openApiDocument } from '../openapi/document.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute, type Route } from '../routing/route.ts';

const KEYS_PATH = '/.well-known/jwks.json';
const CACHED = { 'Cache-Control': 'public, max-age=300' };

const healthz = defineRoute({
  method: 'GET',
  path: '/healthz',
  operationId: 'healthz',
  summary: 'Whether this edge answers and its configuration is whole',
  access: { kind: 'public' },
  answers: {
    200: { description: 'It does', content: { 'application/json': z.object({ status: z.literal('ok') }) } },
  },
  errors: [],
  handle: () => reply(200, { status: 'ok' }),
});

/** An answer this young serves: anybody may ask, and each question would wake an object. */
const READINESS_LIVE_MS = 5_000;
let readyUntilMs = 0;

const readyz = defineRoute({
  method: 'GET',
  path: '/readyz',
  operationId: 'readyz',
  summary: 'Whether this edge can serve: its configuration is whole and its objects answer',
  access: { kind: 'public' },
  answers: {
    200: {
      description: 'It can',
      content: { 'application/json': z.object({ status: z.literal('ready') }) },
    },
  },
  errors: ['overloaded', 'object_reset'],
  handle: async ({ env }) => {
    if (Date.now() >= readyUntilMs) {
      const stub = () => env.AUDIT.getByName(AUDIT_OBJECT);
      unwrap(await callObject(() => stub().list({ before: 1, limit: 1 }), SAFE));
      readyUntilMs = Date.now() + READINESS_LIVE_MS;
    }
    return reply(200, { status: 'ready' });
  },
});

const PublishedKeySchema = PublicJwkSchema.extend({
  kid: z.string(),
  alg: z.literal('Ed25519'),
  use: z.literal('sig'),
});

const jwks = defineRoute({
  method: 'GET',
  path: KEYS_PATH,
  operationId: 'getKeys',
  summary: 'The public keys that sign grants and counter-sign receipts',
  access: { kind: 'public' },
  answers: {
    200: {
      description: 'A JSON Web Key Set',
      content: { 'application/json': z.object({ keys: z.array(PublishedKeySchema) }) },
    },
  },
  errors: [],
  handle: ({ configuration }) => {
    return reply(200, { keys: [published(configuration.grant), published(configuration.receipt)] }, CACHED);
  },
});

function published(key: SigningKey): z.infer<typeof PublishedKeySchema> {
  return { ...key.publicJwk, kid: key.keyId, alg: 'Ed25519', use: 'sig' };
}

const ProtectedResourceSchema = z.object({
  resource: z.string(),
  authorization_servers: z.array(z.string()),
  scopes_supported: z.array(z.string()),
  bearer_methods_supported: z.array(z.string()),
  jwks_uri: z.url(),
  dpop_signing_alg_values_supported: z.array(z.string()),
  dpop_bound_access_tokens_required: z.boolean(),
  resource_name: z.string(),
});

const protectedResource = metadataOf('', {
  operationId: 'getProtectedResource',
  summary: 'Metadata of this protected resource (RFC 9728)',
});

const protectedMcp = metadataOf(MCP_RESOURCE, {
  operationId: 'getProtectedMcp',
  summary: 'Metadata of the MCP server as a protected resource (RFC 9728), where its clients look first',
});

/** Of the whole edge, or of the part of it at a path. */
function metadataOf(resource: string, about: { operationId: string; summary: string }): Route {
  return defineRoute({
    ...about,
    method: 'GET',
    path: metadataPath(resource),
    access: { kind: 'public' },
    answers: {
      200: { description: 'The metadata', content: { 'application/json': ProtectedResourceSchema } },
    },
    errors: [],
    handle: ({ configuration }) => {
      return reply(
        200,
        {
          resource: `${configuration.origin}${resource}`,
          authorization_servers: [...configuration.issuers.keys()],
          scopes_supported: Object.keys(SCOPES),
          bearer_methods_supported: ['header'],
          jwks_uri: `${configuration.origin}${KEYS_PATH}`,
          dpop_signing_alg_values_supported: [...DPOP_ALGORITHMS],
          dpop_bound_access_tokens_required: false,
          resource_name: 'Sandgate',
        },
        CACHED,
      );
    },
  });
}

/** The description is served beside the API and below its version. */
export function documentRoutes(described: readonly Route[]): Route[] {
  const plain = [healthz, readyz, jwks, protectedResource, protectedMcp];
  let text: string | undefined;
  const serve = (path: string, operationId: string): Route =>
    defineRoute({
      method: 'GET',
      path,
      operationId,
      summary: 'This description',
      access: { kind: 'public' },
      answers: {
        200: {
          description: 'An OpenAPI 3.1 document',
          content: { 'application/json': z.record(z.string(), z.unknown()) },
        },
      },
      errors: [],
      handle: ({ configuration }) => {
        text ??= JSON.stringify(openApiDocument([...plain, ...described, ...openApi], configuration.origin));
        return new Response(text, { headers: { 'Content-Type': 'application/json', ...CACHED } });
      },
    });
  const openApi = [serve('/openapi.json', 'getOpenApi'), serve('/v1/openapi.json', 'getVersionedOpenApi')];
  return [...plain, ...openApi];
}
