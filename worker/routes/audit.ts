/** The log of what operators did. */
import * as z from 'zod';
import { AuditPageSchema } from '../../shared/audit.ts';
import { AUDIT_OBJECT } from '../middleware/audit.ts';
import { callObject } from '../middleware/call-object.ts';
import { unwrap } from '../middleware/refusal.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';

const listActs = defineRoute({
  method: 'GET',
  path: '/v1/audit',
  operationId: 'listActs',
  summary: 'What operators did, newest first',
  access: { kind: 'operator' },
  query: z.strictObject({
    limit: z.coerce.number().int().min(1).max(200).default(50).describe('Acts in one answer.'),
    cursor: z
      .string()
      .regex(/^[1-9]\d{0,14}$/)
      .optional()
      .describe('`next_cursor` of the answer before.'),
  }),
  answers: { 200: { description: 'A page', content: { 'application/json': AuditPageSchema } } },
  errors: [],
  handle: async ({ env }, { query }) => {
    const before = query.cursor === undefined ? Number.MAX_SAFE_INTEGER : Number(query.cursor);
    const page = { before, limit: query.limit + 1 };
    const found = unwrap(
      await callObject(() => env.AUDIT.getByName(AUDIT_OBJECT).list(page), { safe: true }),
    );
    const entries = found.slice(0, query.limit);
    const next = found.length > entries.length ? String(entries.at(-1)?.n ?? '') : null;
    return reply(200, { entries, next_cursor: next });
  },
});

export const auditRoutes = [listActs];
