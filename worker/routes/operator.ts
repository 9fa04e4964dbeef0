/** The operator's routes, and those by which a host enrols itself. */
import * as z from 'zod';
import { failure } from '../../shared/errors.ts';
import {
  CreateEnrollmentTokenSchema,
  EnrolledSchema,
  EnrollmentChallengeSchema,
  EnrollSchema,
  OperatorHostSchema,
  ROUTES,
} from '../../shared/host-api.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { poolCalls, SAFE, UNSAFE } from '../objects/object-calls.ts';
import { ENROLLMENT_REFUSED } from '../objects/pool/enrollment.ts';
import { poolOfEnrollmentToken } from '../objects/pool/enrollment-token.ts';
import { newNonce } from '../objects/pool/nonce.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';

export const HostListSchema = z.object({ hosts: z.array(OperatorHostSchema) });

const listHosts = defineRoute({
  method: 'GET',
  path: '/v1/hosts',
  operationId: 'listHosts',
  summary: 'The hosts of a pool',
  access: { kind: 'operator' },
  query: CreateEnrollmentTokenSchema,
  answers: { 200: { description: 'Hosts', content: { 'application/json': HostListSchema } } },
  errors: [],
  handle: async (exchange, { query }) => {
    return reply(200, {
      hosts: unwrap(await poolCalls(exchange, query.pool, 'query.pool')((stub) => stub.listHosts(), SAFE)),
    });
  },
});

const getHost = defineRoute({
  method: 'GET',
  path: '/v1/hosts/{host_id}',
  operationId: 'getHost',
  summary: 'One host of a pool, with what keeps it from new sessions in `faults`',
  access: { kind: 'operator' },
  query: CreateEnrollmentTokenSchema,
  answers: { 200: { description: 'The host', content: { 'application/json': OperatorHostSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params, query }) => {
    const hosts = unwrap(
      await poolCalls(exchange, query.pool, 'query.pool')((stub) => stub.listHosts(), SAFE),
    );
    const host = hosts.find(({ host_id }) => host_id === params.host_id);
    if (host === undefined) throw new Refusal(failure('not_found', 'no such host in this pool'));
    return reply(200, host);
  },
});

const createChallenge = defineRoute({
  method: 'POST',
  path: ROUTES.challenges,
  operationId: 'createChallenge',
  summary: 'A nonce that a host signs to enrol',
  access: { kind: 'public' },
  answers: {
    201: {
      description: 'Good for one use within a minute',
      content: { 'application/json': EnrollmentChallengeSchema },
    },
  },
  errors: [],
  // Without an object: anybody may ask, and every placement goes through the pool's.
  handle: async ({ configuration }) =>
    reply(201, { nonce: await newNonce(configuration.tagKey, Date.now()) }),
});

const enroll = defineRoute({
  method: 'POST',
  path: ROUTES.enroll,
  operationId: 'enroll',
  summary: 'Enrol a host: its token is spent, its key certified',
  access: { kind: 'public' },
  body: EnrollSchema,
  answers: {
    201: {
      description: 'What the host keeps, and the root key that it pins',
      content: { 'application/json': EnrolledSchema },
    },
  },
  errors: ['enrollment_refused', 'proof_refused'],
  handle: async (exchange, { body }) => {
    const { tagKey } = exchange.configuration;
    const pool = await poolOfEnrollmentToken(tagKey, body.enrollment_token);
    // Before any object wakes: the route is public, and every placement goes through the pool's object.
    if (pool === undefined || !exchange.configuration.pools.has(pool)) {
      throw new Refusal(failure('enrollment_refused', ENROLLMENT_REFUSED));
    }
    const calls = poolCalls(exchange, pool, 'body.enrollment_token');
    return reply(201, unwrap(await calls((stub) => stub.enroll(body), UNSAFE)));
  },
});

// The paths of enrolment come before the one with a parameter that would take their last part for a host.
export const operatorRoutes = [listHosts, createChallenge, enroll, getHost];
