/** API keys of a tenant, for its operator, and their exchange for access tokens. */
import * as z from 'zod';
import {
  ACCESS_TOKEN_TYPE,
  ApiKeySchema,
  CreateApiKeySchema,
  ExchangeSchema,
  IssuedTokenSchema,
  NewApiKeySchema,
  newApiKey,
  readApiKey,
} from '../../shared/api-key.ts';
import { sha256Hex } from '../../shared/digest.ts';
import { type Failure, failure } from '../../shared/errors.ts';
import { type ToolPolicy, ToolPolicySchema } from '../../shared/tool-policy.ts';
import { notFound } from '../calls/own-session.ts';
import type { Configuration } from '../configuration.ts';
import { decodeToken, MAX_TOKEN_BYTES } from '../identity/compact-token.ts';
import { issueAccessToken } from '../identity/own-issuer.ts';
import { challenge } from '../middleware/authentication.ts';
import { invalid } from '../middleware/body.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { SAFE, tenantCalls, UNSAFE } from '../objects/object-calls.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';
import { narrowedPolicy } from '../tools/narrow-policy.ts';
import { listedTenantOf, tenantOf } from './tenant-name.ts';

const createApiKey = defineRoute({
  method: 'POST',
  path: '/v1/tenants/{tenant}/api-keys',
  operationId: 'createApiKey',
  summary: 'An API key that acts for one subject of a tenant',
  access: { kind: 'operator' },
  body: CreateApiKeySchema,
  answers: {
    201: { description: 'The key; it is not shown again', content: { 'application/json': NewApiKeySchema } },
  },
  errors: ['not_found', 'quota_exceeded'],
  handle: async ({ env, configuration }, { params, body }) => {
    const tenant = await listedTenantOf(env, params.tenant);
    if (body.expires_at !== null && Date.parse(body.expires_at) <= Date.now()) {
      throw invalid([{ path: 'body.expires_at', expected: 'a time to come' }]);
    }
    const { keyId, apiKey } = await newApiKey(configuration.tagKey, tenant);
    const sha256 = await sha256Hex(apiKey);
    const key = await tenantCalls(env, tenant)(
      (stub) => stub.addApiKey({ keyId, sha256, key: body }),
      UNSAFE,
    );
    return reply(201, { ...unwrap(key), api_key: apiKey });
  },
});

const listApiKeys = defineRoute({
  method: 'GET',
  path: '/v1/tenants/{tenant}/api-keys',
  operationId: 'listApiKeys',
  summary: 'The API keys of a tenant, newest first; what is revoked or over stays for 30 days',
  access: { kind: 'operator' },
  answers: {
    200: {
      description: 'The keys, without what is secret of them',
      content: { 'application/json': z.object({ api_keys: z.array(ApiKeySchema) }) },
    },
  },
  errors: ['not_found'],
  handle: async ({ env }, { params }) => {
    const calls = tenantCalls(env, tenantOf(params.tenant));
    return reply(200, { api_keys: unwrap(await calls((stub) => stub.apiKeys(), SAFE)) });
  },
});

const revokeApiKey = defineRoute({
  method: 'DELETE',
  path: '/v1/tenants/{tenant}/api-keys/{key_id}',
  operationId: 'revokeApiKey',
  summary: 'Revoke an API key: it is exchanged no more, and its tokens are refused within a minute',
  access: { kind: 'operator' },
  answers: { 204: { description: 'Noted' } },
  errors: ['not_found'],
  handle: async ({ env }, { params }) => {
    const calls = tenantCalls(env, tenantOf(params.tenant));
    const revoked = unwrap(await calls((stub) => stub.revokeApiKey(params.key_id), SAFE));
    if (!revoked) throw notFound('the tenant has no such key');
    return emptyReply();
  },
});

const exchangeApiKey = defineRoute({
  method: 'POST',
  path: '/v1/tokens',
  operationId: 'exchangeApiKey',
  summary: 'An access token for an API key; it lives for a quarter of an hour where nothing else is asked',
  access: { kind: 'public' },
  body: ExchangeSchema,
  answers: { 200: { description: 'The token', content: { 'application/json': IssuedTokenSchema } } },
  errors: ['unauthenticated', 'insufficient_scope', 'rate_limited'],
  handle: async ({ env, configuration }, { body }) => {
    // Before any object wakes: the route is public.
    const read = await readApiKey(configuration.tagKey, body.api_key);
    if (read === undefined)
      throw refused(configuration, failure('unauthenticated', 'not an API key of this edge'));
    const { tenant, keyId } = read;
    const sha256 = await sha256Hex(body.api_key);
    const used = await tenantCalls(env, tenant)((stub) => stub.useApiKey({ keyId, sha256 }), SAFE);
    if (!used.ok) throw used.code === 'unauthenticated' ? refused(configuration, used) : new Refusal(used);
    const { subject, scopes, expires_at: expiresAt } = used.value;
    const toolPolicy = narrowedOnce(used.value.tool_policy, body.tool_policy ?? null);
    const scope = narrowed(scopes, body.scope);
    const nowMs = Date.now();
    // No token outlives its key.
    const restS = expiresAt === null ? body.lifetime_s : Math.floor((Date.parse(expiresAt) - nowMs) / 1_000);
    const lifetimeS = Math.min(body.lifetime_s, restS);
    if (lifetimeS < 1)
      throw refused(configuration, failure('unauthenticated', 'the API key is about to expire'));
    const facts = { tenant, subject, apiKeyId: keyId, scope, toolPolicy, lifetimeS };
    const token = await issueAccessToken(configuration.ownIssuer, facts, nowMs);
    if (!decodeToken(token).ok) {
      const expected = `scopes that leave room for the tool policy in a token of ${MAX_TOKEN_BYTES} bytes`;
      throw invalid([{ path: 'body.scope', expected }]);
    }
    return reply(200, {
      access_token: token,
      issued_token_type: ACCESS_TOKEN_TYPE,
      token_type: 'Bearer',
      expires_in: lifetimeS,
      scope,
      ...(toolPolicy === null ? {} : { tool_policy: toolPolicy }),
    });
  },
});

/** Of both: neither widens the other. */
function narrowedOnce(ofKey: ToolPolicy | null, asked: ToolPolicy | null): ToolPolicy | null {
  const both = narrowedPolicy(ofKey, asked);
  if (both === null || ToolPolicySchema.safeParse(both).success) return both;
  const expected = 'a policy that has room beside that of the key';
  throw invalid([{ path: 'body.tool_policy', expected }]);
}

/** What is asked for, if the key has all of it. */
function narrowed(scopes: readonly string[], asked: string | undefined): string {
  if (asked === undefined) return scopes.join(' ');
  const wanted = [...new Set(asked.split(' ').filter((name) => name !== ''))];
  const missing = wanted.filter((name) => !scopes.includes(name));
  if (missing.length > 0) {
    throw new Refusal(failure('insufficient_scope', `the API key lacks ${missing.join(', ')}`));
  }
  return wanted.join(' ');
}

function refused(configuration: Configuration, why: Failure): Refusal {
  const about = { scopes: [], error: 'invalid_token', description: why.detail };
  return new Refusal(why, challenge(configuration, about));
}

export const apiKeyRoutes = [createApiKey, listApiKeys, revokeApiKey, exchangeApiKey];
