/** The operator's routes about how long a tenant's things are kept. */
import { RetentionSchema } from '../../shared/retention.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE, tenantCalls } from '../objects/object-calls.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';
import { listedTenantOf, tenantOf } from './tenant-name.ts';

const PATH = '/v1/tenants/{tenant}/retention';
const ANSWERS = {
  200: { description: 'How many days what is kept', content: { 'application/json': RetentionSchema } },
} as const;

const getRetention = defineRoute({
  method: 'GET',
  path: PATH,
  operationId: 'getRetention',
  summary: 'How many days what a tenant leaves behind is kept',
  access: { kind: 'operator' },
  answers: ANSWERS,
  errors: ['not_found'],
  handle: async ({ env }, { params }) => {
    const calls = tenantCalls(env, tenantOf(params.tenant));
    return reply(200, unwrap(await calls((stub) => stub.retention(), SAFE)));
  },
});

const setRetention = defineRoute({
  method: 'PUT',
  path: PATH,
  operationId: 'setRetention',
  summary: 'Replace how many days what a tenant leaves behind is kept: what is older goes within a day',
  access: { kind: 'operator' },
  body: RetentionSchema,
  answers: ANSWERS,
  errors: ['not_found'],
  handle: async ({ env }, { params, body }) => {
    const calls = tenantCalls(env, await listedTenantOf(env, params.tenant));
    unwrap(await calls((stub) => stub.setRetention(body), SAFE));
    return reply(200, body);
  },
});

export const retentionRoutes = [getRetention, setRetention];
