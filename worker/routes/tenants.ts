/** The operator's routes about tenants: who may call at all, how much, and what was used. */
import * as z from 'zod';
import { TenantSchema } from '../../shared/ids.ts';
import {
  DaySchema,
  ListedTenantSchema,
  SubjectSchema,
  SubjectUsageSchema,
  TenantLimitsSchema,
  UsageReportSchema,
} from '../../shared/tenant.ts';
import { notFound } from '../calls/own-session.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE, tenantCalls, tenantIndexCalls } from '../objects/object-calls.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';
import { listedTenantOf, tenantOf } from './tenant-name.ts';
import { rangeOf, UsageQuerySchema } from './usage.ts';

export const TenantStatusSchema = z.object({
  tenant: TenantSchema,
  disabled: z.boolean(),
  revoked_tokens: z.int().describe('Revoked tokens that may still live.'),
});

export const TenantListSchema = z.object({
  tenants: z.array(ListedTenantSchema),
  next_cursor: z.string().nullable(),
});

const listTenants = defineRoute({
  method: 'GET',
  path: '/v1/tenants',
  operationId: 'listTenants',
  summary: 'The tenants that ever called, or of which an operator set something, in the order of their names',
  access: { kind: 'operator' },
  query: z.strictObject({
    limit: z.coerce.number().int().min(1).max(1_000).default(100).describe('Tenants in one answer.'),
    cursor: TenantSchema.optional().describe('`next_cursor` of the answer before.'),
  }),
  answers: { 200: { description: 'A page', content: { 'application/json': TenantListSchema } } },
  errors: [],
  handle: async ({ env }, { query }) => {
    const page = { after: query.cursor ?? '', limit: query.limit + 1 };
    const found = unwrap(await tenantIndexCalls(env)((stub) => stub.list(page), SAFE));
    const tenants = found.slice(0, query.limit);
    const next = found.length > tenants.length ? (tenants.at(-1)?.tenant ?? null) : null;
    return reply(200, { tenants, next_cursor: next });
  },
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
    const calls = tenantCalls(env, await listedTenantOf(env, params.tenant));
    unwrap(await calls((stub) => stub.setDisabled(body.disabled), SAFE));
    return emptyReply();
  },
});

const revokeToken = defineRoute({
  method: 'POST',
  path: '/v1/tenants/{tenant}/revoked-tokens',
  operationId: 'revokeToken',
  summary:
    'Revoke one access token by its `jti`, or all tokens and API keys that a subject has now: refused within a minute',
  access: { kind: 'operator' },
  body: z
    .strictObject({ jti: z.string().min(1).max(255).optional(), subject: SubjectSchema.optional() })
    .refine(({ jti, subject }) => (jti === undefined) !== (subject === undefined), {
      message: 'exactly one of jti and subject',
    }),
  answers: { 204: { description: 'Noted' } },
  errors: ['not_found', 'quota_exceeded'],
  handle: async ({ env }, { params, body }) => {
    const calls = tenantCalls(env, await listedTenantOf(env, params.tenant));
    const { jti, subject } = body;
    if (jti !== undefined) unwrap(await calls((stub) => stub.revokeToken(jti), SAFE));
    if (subject !== undefined) unwrap(await calls((stub) => stub.revokeSubject(subject), SAFE));
    return emptyReply();
  },
});

const getTenantLimits = defineRoute({
  method: 'GET',
  path: '/v1/tenants/{tenant}/limits',
  operationId: 'getTenantLimits',
  summary: 'The limits of a tenant, of its subjects and of its sessions',
  access: { kind: 'operator' },
  answers: { 200: { description: 'The limits', content: { 'application/json': TenantLimitsSchema } } },
  errors: ['not_found'],
  handle: async ({ env }, { params }) => {
    const calls = tenantCalls(env, tenantOf(params.tenant));
    return reply(200, unwrap(await calls((stub) => stub.limits(), SAFE)));
  },
});

const setTenantLimits = defineRoute({
  method: 'PUT',
  path: '/v1/tenants/{tenant}/limits',
  operationId: 'setTenantLimits',
  summary:
    'Replace the limits of a tenant: they hold for what begins from now on, as soon as the sessions that are there hear of them',
  access: { kind: 'operator' },
  body: TenantLimitsSchema,
  answers: { 200: { description: 'The limits', content: { 'application/json': TenantLimitsSchema } } },
  errors: ['not_found'],
  handle: async ({ env }, { params, body }) => {
    const tenant = await listedTenantOf(env, params.tenant);
    const calls = tenantCalls(env, tenant);
    unwrap(await calls((stub) => stub.setLimits(tenant, body), SAFE));
    return reply(200, body);
  },
});

const getTenantUsage = defineRoute({
  method: 'GET',
  path: '/v1/tenants/{tenant}/usage',
  operationId: 'getTenantUsage',
  summary: 'What a tenant used, day by day, and what it uses now',
  access: { kind: 'operator' },
  query: UsageQuerySchema,
  answers: { 200: { description: 'The usage', content: { 'application/json': UsageReportSchema } } },
  errors: ['not_found'],
  handle: async ({ env }, { params, query }) => {
    const tenant = tenantOf(params.tenant);
    const range = rangeOf(query, Date.now());
    return reply(200, unwrap(await tenantCalls(env, tenant)((stub) => stub.usage(tenant, range), SAFE)));
  },
});

const getSubjectUsage = defineRoute({
  method: 'GET',
  path: '/v1/tenants/{tenant}/usage/{day}',
  operationId: 'getSubjectUsage',
  summary: 'What each subject of a tenant used on one day, in the order of their names',
  access: { kind: 'operator' },
  query: z.strictObject({
    limit: z.coerce.number().int().min(1).max(1_000).default(100).describe('Subjects in one answer.'),
    cursor: z.string().min(1).max(255).optional().describe('`next_cursor` of the answer before.'),
  }),
  answers: { 200: { description: 'The usage', content: { 'application/json': SubjectUsageSchema } } },
  errors: ['not_found'],
  handle: async ({ env }, { params, query }) => {
    const tenant = tenantOf(params.tenant);
    const day = DaySchema.safeParse(params.day);
    if (!day.success) throw notFound('not a day');
    const page = { after: query.cursor ?? '', limit: query.limit + 1 };
    const found = unwrap(await tenantCalls(env, tenant)((stub) => stub.subjectUsage(day.data, page), SAFE));
    const subjects = found.slice(0, query.limit);
    const next = found.length > subjects.length ? (subjects.at(-1)?.subject ?? null) : null;
    return reply(200, { tenant, day: day.data, subjects, next_cursor: next });
  },
});

export const tenantRoutes = [
  listTenants,
  getTenant,
  setTenantStatus,
  revokeToken,
  getTenantLimits,
  setTenantLimits,
  getTenantUsage,
  getSubjectUsage,
];
