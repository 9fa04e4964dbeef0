/** What a request to make a session of a snapshot comes to: what it does not say itself, the snapshot says. */
import { type Outcome, success } from '../../shared/errors.ts';
import type { CreateSession } from '../../shared/session.ts';
import { invalid } from '../middleware/body.ts';
import { SAFE, snapshotCalls } from '../objects/object-calls.ts';
import { openNetwork } from '../objects/session/sandbox/stored-network.ts';
import type { SnapshotFacts } from '../objects/snapshots/port.ts';
import type { Exchange } from '../routing/route.ts';

export interface SnapshotOrigin {
  snapshot: SnapshotFacts;
  request: CreateSession;
}

/** Null where the session begins empty. */
export async function originOf(
  exchange: Exchange<'tenant'>,
  request: CreateSession,
  known: SnapshotFacts | undefined,
): Promise<Outcome<SnapshotOrigin | null>> {
  if (known !== undefined) return success(await withSnapshot(exchange, request, known));
  const { from_snapshot: snapshotId, rescue, rescue_image: rescueImage } = request;
  if (rescue === undefined && rescueImage !== undefined) throw alone('rescue_image', 'rescue');
  if (snapshotId === undefined) {
    if (rescue !== undefined) throw alone('rescue', 'from_snapshot');
    return success(null);
  }
  const given = (['env', 'limits', 'network'] as const).filter((name) => !isEmpty(request[name]));
  if (given.length > 0) {
    throw invalid(given.map((name) => ({ path: `body.${name}`, expected: 'nothing: the snapshot says it' })));
  }
  const { tenant, subject } = exchange.principal;
  const found = await snapshotCalls(exchange.env, tenant)((stub) => stub.find(subject, snapshotId), SAFE);
  return found.ok ? success(await withSnapshot(exchange, request, found.value.facts)) : found;
}

async function withSnapshot(
  { configuration, principal }: Exchange<'tenant'>,
  request: CreateSession,
  snapshot: SnapshotFacts,
): Promise<SnapshotOrigin> {
  const owner = { tenant: principal.tenant, sessionId: snapshot.snapshotId };
  const network = await openNetwork(configuration.secretsKey, owner, snapshot.network);
  const { environment, pool } = snapshot;
  const image = request.rescue_image ?? snapshot.image;
  return { snapshot, request: { ...request, image, env: environment, network, pool } };
}

/** A field that says nothing without another one. */
export function alone(name: string, beside: string) {
  return invalid([{ path: `body.${name}`, expected: `only beside ${beside}` }]);
}

function isEmpty(value: object | null): boolean {
  return value === null || Object.keys(value).length === 0;
}
