/** The pools of this edge, with what their hosts have together. */
import * as z from 'zod';
import { PoolSummarySchema } from '../../shared/host-api.ts';
import { PoolNameSchema } from '../../shared/ids.ts';
import { unwrap } from '../middleware/refusal.ts';
import { poolCalls, SAFE } from '../objects/object-calls.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';

export const PoolListSchema = z.object({
  pools: z.array(PoolSummarySchema),
  next_cursor: PoolNameSchema.nullable(),
});

const listPools = defineRoute({
  method: 'GET',
  path: '/v1/pools',
  operationId: 'listPools',
  summary: 'The pools of this edge in the order of their names, with hosts, sandboxes and room',
  access: { kind: 'operator' },
  query: z.strictObject({
    // Each costs a call to its object.
    limit: z.coerce.number().int().min(1).max(32).default(16).describe('Pools in one answer.'),
    cursor: PoolNameSchema.optional().describe('`next_cursor` of the answer before.'),
  }),
  answers: { 200: { description: 'A page', content: { 'application/json': PoolListSchema } } },
  errors: [],
  handle: async (exchange, { query }) => {
    const { cursor = '', limit } = query;
    const after = [...exchange.configuration.pools.values()]
      .filter(({ name }) => name > cursor)
      .toSorted((left, right) => (left.name < right.name ? -1 : 1));
    const pools = await Promise.all(
      after.slice(0, limit).map(async ({ name, region, classes }) => {
        const summary = unwrap(await poolCalls(exchange, name, 'pool')((stub) => stub.summary(), SAFE));
        return { pool: name, region: region ?? null, classes: classes ?? null, ...summary };
      }),
    );
    return reply(200, { pools, next_cursor: after.length > limit ? (pools.at(-1)?.pool ?? null) : null });
  },
});

export const poolRoutes = [listPools];
