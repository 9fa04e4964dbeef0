/** Tokens with which hosts enrol: made, listed without what they are, and taken back. */
import * as z from 'zod';
import {
  CreateEnrollmentTokenSchema,
  EnrollmentTokenIdSchema,
  EnrollmentTokenSchema,
  ListedEnrollmentTokenSchema,
} from '../../shared/host-api.ts';
import { notFound } from '../calls/own-session.ts';
import { invalid } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { poolCalls, SAFE, UNSAFE } from '../objects/object-calls.ts';
import type { TokenPosition } from '../objects/pool/enrollment-token-store.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';

const createEnrollmentToken = defineRoute({
  method: 'POST',
  path: '/v1/enrollment-tokens',
  operationId: 'createEnrollmentToken',
  summary: 'A token with which one host may enrol once',
  access: { kind: 'operator' },
  body: CreateEnrollmentTokenSchema,
  answers: {
    201: {
      description: 'The token; it is not shown again',
      content: { 'application/json': EnrollmentTokenSchema },
    },
  },
  errors: [],
  handle: async (exchange, { body }) => {
    const { pool } = body;
    const calls = poolCalls(exchange, pool, 'body.pool');
    return reply(201, unwrap(await calls((stub) => stub.createEnrollmentToken({ pool }), UNSAFE)));
  },
});

export const EnrollmentTokenListSchema = z.object({
  enrollment_tokens: z.array(ListedEnrollmentTokenSchema),
  next_cursor: z.string().nullable(),
});

const listEnrollmentTokens = defineRoute({
  method: 'GET',
  path: '/v1/enrollment-tokens',
  operationId: 'listEnrollmentTokens',
  summary:
    'The enrolment tokens of a pool, newest first, with what became of them: for 30 days after their time',
  access: { kind: 'operator' },
  query: CreateEnrollmentTokenSchema.extend({
    limit: z.coerce.number().int().min(1).max(200).default(50).describe('Tokens in one answer.'),
    cursor: z.string().min(1).max(64).optional().describe('`next_cursor` of the answer before.'),
  }),
  answers: { 200: { description: 'A page', content: { 'application/json': EnrollmentTokenListSchema } } },
  errors: [],
  handle: async (exchange, { query }) => {
    const page = { after: positionOf(query.cursor), limit: query.limit + 1 };
    const calls = poolCalls(exchange, query.pool, 'query.pool');
    const found = unwrap(await calls((stub) => stub.listEnrollmentTokens(page), SAFE));
    const tokens = found.slice(0, query.limit);
    const last = found.length > tokens.length ? tokens.at(-1) : undefined;
    const next = last === undefined ? null : `${Date.parse(last.expires_at)}.${last.token_id}`;
    return reply(200, { enrollment_tokens: tokens, next_cursor: next });
  },
});

function positionOf(cursor: string | undefined): TokenPosition | undefined {
  if (cursor === undefined) return undefined;
  const [, expiresAt, tokenId] = /^([1-9]\d{0,14})\.(ent_[0-9a-f]{32})$/.exec(cursor) ?? [];
  if (expiresAt === undefined || tokenId === undefined) {
    throw invalid([{ path: 'query.cursor', expected: 'next_cursor of a former answer' }]);
  }
  return { expiresAtMs: Number(expiresAt), tokenId };
}

const revokeEnrollmentToken = defineRoute({
  method: 'DELETE',
  path: '/v1/enrollment-tokens/{token_id}',
  operationId: 'revokeEnrollmentToken',
  summary: 'Take an enrolment token back: no host enrols with it any more',
  access: { kind: 'operator' },
  query: CreateEnrollmentTokenSchema,
  answers: {
    200: {
      description: 'The token as it is then: `used` where a host was faster, which can be revoked itself',
      content: { 'application/json': ListedEnrollmentTokenSchema },
    },
  },
  errors: ['not_found'],
  handle: async (exchange, { params, query }) => {
    const tokenId = EnrollmentTokenIdSchema.safeParse(params.token_id).data;
    if (tokenId === undefined) throw notFound('no such enrolment token in this pool');
    const calls = poolCalls(exchange, query.pool, 'query.pool');
    return reply(200, unwrap(await calls((stub) => stub.revokeEnrollmentToken(tokenId), SAFE)));
  },
});

export const enrollmentTokenRoutes = [createEnrollmentToken, listEnrollmentTokens, revokeEnrollmentToken];
