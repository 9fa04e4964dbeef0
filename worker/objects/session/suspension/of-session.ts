/** How a session goes into a snapshot and comes back, wired to its other parts. */
import type { Failure } from '../../../../shared/errors.ts';
import type { Configuration } from '../../../configuration.ts';
import type { Env } from '../../../env.ts';
import type { Account } from '../account/account.ts';
import { waitsForTools } from '../alarm/agenda.ts';
import type { SessionEvents } from '../events/events.ts';
import type { RestorePoints } from '../restore-points/restore-points.ts';
import { isToBeSent } from '../rows/records.ts';
import type { SessionStore } from '../rows/store.ts';
import type { SandboxChanges } from '../sandbox/sandbox-changes.ts';
import type { SessionParts } from '../session-parts.ts';
import { Suspension } from './suspension.ts';
import { Waking } from './waking.ts';

interface SuspendableSession extends SessionParts {
  readonly store: SessionStore;
  readonly events: SessionEvents;
  readonly account: Account;
  readonly sandboxChanges: SandboxChanges;
  readonly restorePoints: RestorePoints;
}

export function suspensionOf(
  session: SuspendableSession,
  wired: { env: Env; configuration: Configuration; moved: () => void },
): Suspension {
  const { row, store, executions, dispatch, deadlines, pausing, sandbox, transfers } = session;
  return new Suspension({
    row,
    store,
    executions,
    dispatch,
    deadlines,
    pausing,
    sandbox,
    transfers,
    env: wired.env,
    configuration: wired.configuration,
    link: () => session.link,
    port: {
      moved: wired.moved,
      pump: () => void dispatch.pump(),
      look: () => session.look(),
      isToWake: () => session.waking.isLeaving,
      forked: (carried) => session.programs.forked(carried),
      sandboxLost: (reason) => session.sandboxChanges.abandon(reason),
      snapshotMade: (data) => session.events.record({ type: 'snapshot.created', data }),
      kept: (snapshot) => session.lineage.made(snapshot),
      giveWay: () => session.lineage.giveWay(),
    },
  });
}

export function wakingOf(session: SuspendableSession, wired: { env: Env; moved: () => void }): Waking {
  const { row, store, executions, deadlines, sandbox, account, programs } = session;
  return new Waking({
    row,
    store,
    executions,
    deadlines,
    sandbox,
    env: wired.env,
    link: () => session.link,
    port: {
      moved: wired.moved,
      takePlace: () => account.takePlace(),
      giveBackPlace: () => account.giveBackPlace(),
      rescued: (snapshot) => {
        for (const record of executions.open.slice()) {
          if (!isToBeSent(record)) executions.end(record, { status: 'unknown', reason: 'rescued' });
        }
        const { image } = snapshot.rescue ?? row.record.facts;
        const { state, facts } = row.record;
        const data = { state, host_id: facts.hostId, snapshot_id: snapshot.snapshotId, image };
        session.events.record({ type: 'session.rescued', data });
      },
      restored: (snapshot) => session.lineage.restored(snapshot),
      isMissed: () =>
        executions.inFlight.some(
          (record) => !waitsForTools(record) || programs.store.untaken(record.n).length > 0,
        ),
      look: () => session.look(),
      giveUp: ({ code }) => {
        for (const record of executions.inFlight.slice()) {
          executions.end(record, { status: 'unknown', reason: code });
        }
      },
      refuse: (why) => refuseWaiting(session, why),
    },
  });
}

function refuseWaiting({ transfers, executions }: SessionParts, why: Failure): void {
  transfers.refuseWaiting(why);
  for (let next = executions.firstToSend; next !== undefined; next = executions.firstToSend) {
    executions.end(next, { status: 'refused', reason: why.code });
  }
}

/** A call that waits wakes the session, be it that it came while the session moved. */
export function wakeForWaiting({ row, executions, waking }: SessionParts): void {
  if (row.maybe?.state !== 'suspended') return;
  if (executions.firstToSend !== undefined) void waking.wake();
}

/** What waits for a snapshot to be made or restored waited in memory. */
export function wakeAfterRestart(session: SessionParts): void {
  const { state, sandbox, snapshot } = session.row.record;
  if (snapshot === null) return;
  if (state === 'running' && sandbox === 'ready') queueMicrotask(() => session.waking.restored());
  if (state === 'suspended') queueMicrotask(() => wakeForWaiting(session));
}
