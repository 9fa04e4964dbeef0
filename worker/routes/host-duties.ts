/** What an operator wants of a host: that it gets no new sessions, that it takes none, that all is as usual, or that it goes. */
import { failure, success } from '../../shared/errors.ts';
import { CreateEnrollmentTokenSchema, OperatorHostSchema } from '../../shared/host-api.ts';
import { HostIdSchema } from '../../shared/ids.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { hostCalls, poolCalls, SAFE } from '../objects/object-calls.ts';
import type { OperatorFault } from '../objects/pool/port.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';

interface Duty {
  faults: Partial<Record<OperatorFault, boolean>>;
  /** What the host itself is told; null where it need not know. */
  draining: boolean | null;
}

const COMMON = {
  method: 'POST',
  access: { kind: 'operator' },
  query: CreateEnrollmentTokenSchema,
  answers: {
    200: { description: 'The host as it is then', content: { 'application/json': OperatorHostSchema } },
  },
  errors: ['not_found'],
} as const;

async function impose(
  exchange: Exchange<'operator'>,
  host: { id: string; pool: string },
  { faults, draining }: Duty,
): Promise<Response> {
  const hostId = hostIdOf(host.id);
  const pool = poolCalls(exchange, host.pool, 'query.pool');
  // Setting it twice sets it once. The pool knows its hosts: no object wakes for one that was made up.
  const marked = unwrap(await pool((stub) => stub.markHost({ hostId, faults }), SAFE));
  if (draining !== null) {
    const told = await hostCalls(exchange.env, hostId)(async (stub) => {
      await stub.drain(draining);
      return success(null);
    }, SAFE);
    unwrap(told);
  }
  return reply(200, marked);
}

const cordon = defineRoute({
  ...COMMON,
  path: '/v1/hosts/{host_id}/cordon',
  operationId: 'cordonHost',
  summary: 'No new session is placed on the host; those that it has go on',
  handle: (exchange, { params, query }) =>
    impose(
      exchange,
      { id: params.host_id, pool: query.pool },
      { faults: { cordoned: true }, draining: null },
    ),
});

const drain = defineRoute({
  ...COMMON,
  path: '/v1/hosts/{host_id}/drain',
  operationId: 'drainHost',
  summary:
    'As `cordon`, and the host itself takes no sandbox any more until `uncordon`; it is empty when `sandboxes` is 0',
  handle: (exchange, { params, query }) =>
    impose(
      exchange,
      { id: params.host_id, pool: query.pool },
      { faults: { cordoned: true, draining: true }, draining: true },
    ),
});

const uncordon = defineRoute({
  ...COMMON,
  path: '/v1/hosts/{host_id}/uncordon',
  operationId: 'uncordonHost',
  summary: 'The host gets sessions again',
  handle: (exchange, { params, query }) =>
    impose(
      exchange,
      { id: params.host_id, pool: query.pool },
      { faults: { cordoned: false, draining: false }, draining: false },
    ),
});

const revokeHost = defineRoute({
  method: 'DELETE',
  path: '/v1/hosts/{host_id}',
  operationId: 'revokeHost',
  summary:
    'Take a host out for good: its links end, its sessions lose it, and its key is never taken again. Drain it first where its sessions are to live',
  access: { kind: 'operator' },
  query: CreateEnrollmentTokenSchema,
  answers: { 204: { description: 'It is none of the hosts any more; the same again does no harm' } },
  errors: ['not_found'],
  handle: async (exchange, { params, query }) => {
    const hostId = hostIdOf(params.host_id);
    const pool = poolCalls(exchange, query.pool, 'query.pool');
    // First, so that its key cannot enrol in between; and the pool knows its hosts, also those that were revoked before.
    unwrap(await pool((stub) => stub.revokeHost({ hostId }), SAFE));
    const host = { hostId, pool: query.pool };
    unwrap(await hostCalls(exchange.env, hostId)((stub) => stub.revoke(host), SAFE));
    return emptyReply();
  },
});

function hostIdOf(text: string): string {
  const hostId = HostIdSchema.safeParse(text).data;
  if (hostId === undefined) throw new Refusal(failure('not_found', 'no such host in this pool'));
  return hostId;
}

export const hostDutyRoutes = [cordon, drain, uncordon, revokeHost];
