/** The operator's routes about tenants: who may call at all. */
import * as z from 'zod';
import { TenantSchema } from '../../shared/ids.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE, tenantCalls } from './object-calls.ts';
import { notFound } from './own-session.ts';
import { emptyReply, reply } from './reply.ts';
import { defineRoute } from './route.ts';

export const TenantStatusSchema = z.object({
  tenant: TenantSchema,
  disabled: z.boolean(),
  revoked_tokens: z.int().describe('Revoked tokens that may still live.'),
});

const getTenant = defineRoute({
  method: 'GET',
  path: '/v1/tenants/{tenant}',
  operationId: 'getTenant',
  summary: 'Whether a tenant may call; a name that nobody used yet is a tenant too',
  access: { kind: 'operator' },
  answers: { 200: { description: 'The tenant', content: { 'application/json': TenantStatusSchema } } },
  errors: ['not_found'],
  handle: async ({ env }, { params }) => {
    const tenant = tenantOf(params.tenant);
    return reply(200, { tenant, ...unwrap(await tenantCalls(env, tenant)((stub) => stub.status(), SAFE)) });
  },
});

const setTenantStatus = defineRoute({
  method: 'POST',
  path: '/v1/tenants/{tenant}/status',
  operationId: 'setTenantStatus',
  summary: 'Disable a tenant or enable it again: its tokens are refused within a minute',
  access: { kind: 'operator' },
  body: z.strictObject({ disabled: z.boolean() }),
  answers: { 204: { description: 'Noted' } },
  errors: ['not_found'],
  handle: async ({ env }, { params, body }) => {
    const calls = tenantCalls(env, tenantOf(params.tenant));
    unwrap(await calls((stub) => stub.setDisabled(body.disabled), SAFE));
    return emptyReply();
  },
});

const revokeToken = defineRoute({
  method: 'POST',
  path: '/v1/tenants/{tenant}/revoked-tokens',
  operationId: 'revokeToken',
  summary: 'Revoke one access token by its `jti`: it is refused within a minute',
  access: { kind: 'operator' },
  body: z.strictObject({ jti: z.string().min(1).max(255) }),
  answers: { 204: { description: 'Noted' } },
  errors: ['not_found', 'quota_exceeded'],
  handle: async ({ env }, { params, body }) => {
    const calls = tenantCalls(env, tenantOf(params.tenant));
    unwrap(await calls((stub) => stub.revokeToken(body.jti), SAFE));
    return emptyReply();
  },
});

function tenantOf(name: string): string {
  const tenant = TenantSchema.safeParse(name);
  if (tenant.success) return tenant.data;
  throw notFound('no tenant can have this name');
}

export const tenantRoutes = [getTenant, setTenantStatus, revokeToken];
