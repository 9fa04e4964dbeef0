/** The state of the session before the first attempt: a snapshot, to which every failed attempt goes back. */
import { failure } from '../../shared/errors.ts';
import { type OwnSession, sessionOf } from '../calls/own-session.ts';
import { ownersExchange, type RunSurroundings } from '../engine/owner.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { SAFE, snapshotCalls, UNSAFE } from '../objects/object-calls.ts';
import { keptName } from '../objects/repair/kept-name.ts';
import type { RepairPlan } from '../objects/repair/port.ts';

const NEWEST = 20;

export async function keepState(surroundings: RunSurroundings, plan: RepairPlan): Promise<string> {
  const { tenant, subject } = plan.owner;
  const name = keptName(plan.repairRunId);
  const index = snapshotCalls(surroundings.env, tenant);
  // This step may be made again: then the snapshot of the first time is there.
  const { snapshots } = unwrap(await index((stub) => stub.list({ subject, limit: NEWEST }), SAFE));
  const made = snapshots.find((snapshot) => snapshot.name === name);
  if (made !== undefined) return made.snapshot_id;
  const session = sessionIn(surroundings, plan);
  const wish = { kind: 'named', name, replacesLost: true } as const;
  return unwrap(await session.call((stub) => stub.snapshot(session.caller, wish), UNSAFE)).snapshotId;
}

export async function goBack(
  surroundings: RunSurroundings,
  plan: RepairPlan,
  snapshotId: string,
): Promise<null> {
  const session = sessionIn(surroundings, plan);
  unwrap(await session.call((stub) => stub.rollBack(session.caller, { snapshot_id: snapshotId }), UNSAFE));
  return null;
}

export async function forgetState(
  surroundings: RunSurroundings,
  plan: RepairPlan,
  snapshotId: string,
): Promise<null> {
  const { tenant, subject } = plan.owner;
  const removed = await snapshotCalls(surroundings.env, tenant)(
    (stub) => stub.remove(subject, snapshotId),
    SAFE,
  );
  if (removed.ok || removed.code === 'not_found') return null;
  throw new Refusal(failure(removed.code, removed.detail));
}

function sessionIn(surroundings: RunSurroundings, plan: RepairPlan): OwnSession {
  return sessionOf(ownersExchange(surroundings, plan.owner), plan.sessionId);
}
