/** Public documents: what this edge is, which keys it signs with, whom it trusts, and what its routes are. */
import * as z from 'zod';
import { PublicJwkSchema } from '../../shared/ed25519.ts';
import { SCOPES } from '../../shared/scopes.ts';
import type { SigningKey } from '../configuration.ts';
import { PROTECTED_RESOURCE_PATH } from '../middleware/authentication.ts';
import { openApiDocument } from '../openapi/document.ts';
import { reply } from './reply.ts';
import { defineRoute, type Route } from './route.ts';

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

const PublishedKeySchema = PublicJwkSchema.extend({
  kid: z.string(),
  alg: z.literal('Ed25519'),
  use: z.literal('sig'),
});

const jwks = defineRoute({
  method: 'GET',
  path: '/.well-known/jwks.json',
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
  resource_name: z.string(),
});

const protectedResource = defineRoute({
  method: 'GET',
  path: PROTECTED_RESOURCE_PATH,
  operationId: 'getProtectedResource',
  summary: 'Metadata of this protected resource (RFC 9728)',
  access: { kind: 'public' },
  answers: {
    200: { description: 'The metadata', content: { 'application/json': ProtectedResourceSchema } },
  },
  errors: [],
  handle: ({ configuration }) => {
    return reply(
      200,
      {
        resource: configuration.origin,
        authorization_servers: [...configuration.issuers.keys()],
        scopes_supported: Object.keys(SCOPES),
        bearer_methods_supported: ['header'],
        resource_name: 'Sandgate',
      },
      CACHED,
    );
  },
});

/** The description is served beside the API and below its version. */
export function documentRoutes(described: readonly Route[]): Route[] {
  const plain = [healthz, jwks, protectedResource];
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
