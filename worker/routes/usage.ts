/** What the caller's tenant used, and may use. */
import * as z from 'zod';
import { DaySchema, UsageReportSchema } from '../../shared/tenant.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE, tenantCalls } from '../objects/object-calls.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';

const DAY_MS = 86_400_000;
const DEFAULT_DAYS = 30;

export const UsageQuerySchema = z.strictObject({
  from: DaySchema.optional().describe('First day, in UTC; without it, 30 days before the last.'),
  to: DaySchema.optional().describe('Last day, in UTC; without it, today.'),
});

export function rangeOf(
  query: z.infer<typeof UsageQuerySchema>,
  nowMs: number,
): { from: string; to: string } {
  const to = query.to ?? day(nowMs);
  return { from: query.from ?? day(Date.parse(to) - DEFAULT_DAYS * DAY_MS), to };
}

function day(timeMs: number): string {
  return new Date(timeMs).toISOString().slice(0, 10);
}

const getUsage = defineRoute({
  method: 'GET',
  path: '/v1/usage',
  operationId: 'getUsage',
  summary: "What the caller's tenant used, day by day, what it uses now, and its limits",
  access: { kind: 'tenant', scopes: ['usage:read'] },
  query: UsageQuerySchema,
  answers: { 200: { description: 'The usage', content: { 'application/json': UsageReportSchema } } },
  errors: [],
  handle: async ({ env, principal: { tenant } }, { query }) => {
    const range = rangeOf(query, Date.now());
    return reply(200, unwrap(await tenantCalls(env, tenant)((stub) => stub.usage(tenant, range), SAFE)));
  },
});

export const usageRoutes = [getUsage];
