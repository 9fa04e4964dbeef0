/** The session as the API shows it. */
import { networkView } from '../../../shared/network.ts';
import { type Session, WORKDIR } from '../../../shared/session.ts';
import type { ShellStanding } from '../../../shared/shell-standing.ts';
import type { SessionListEntry } from '../tenant/port.ts';
import { expiryOf } from './alarm/agenda.ts';
import type { ExecutionRecord, SessionRecord } from './rows/records.ts';

export function sessionView(record: SessionRecord, open: readonly ExecutionRecord[], total: number): Session {
  const { facts } = record;
  const expiresAtMs = expiryOf(record, Date.now());
  const queued = open.filter(({ status }) => status === 'queued').length;
  return {
    session_id: facts.sessionId,
    state: record.state,
    image: facts.image,
    image_digest: facts.imageDigest,
    resource_limits: facts.limits,
    metadata: facts.metadata,
    labels: facts.labels,
    ...environmentNow(record),
    network: facts.network === null ? null : networkView(facts.network),
    workdir: shellNow(record)?.working_directory ?? WORKDIR,
    pool: facts.pool,
    host_id: record.state === 'suspended' ? null : facts.hostId,
    sandbox_id: record.sandboxId,
    epoch: record.epoch,
    on_host_loss: facts.onHostLoss,
    rollback: facts.rollback,
    suspend_after_idle_s: facts.suspendAfterIdleMs === null ? null : facts.suspendAfterIdleMs / 1000,
    generation: record.generation,
    from_snapshot: facts.fromSnapshot?.snapshotId ?? null,
    parent_session_id: facts.fromSnapshot?.sessionId ?? null,
    idle_timeout_s: Math.round(facts.idleTimeoutMs / 1000),
    owner: { tenant: facts.tenant, subject: facts.subject },
    created_at: new Date(facts.createdAtMs).toISOString(),
    expires_at: expiresAtMs === null ? null : new Date(expiresAtMs).toISOString(),
    last_activity_at: new Date(record.lastActivityAtMs).toISOString(),
    error: record.errorCode === null ? null : { code: record.errorCode, detail: record.errorDetail ?? '' },
    executions: { total, queued, running: open.length - queued },
  };
}

/** What a sandbox had that is gone is nowhere any more, unless the session is in a snapshot. */
function shellNow({ shell, sandbox, state }: SessionRecord): ShellStanding | null {
  return sandbox === 'lost' && state !== 'suspended' ? null : shell;
}

function environmentNow(record: SessionRecord): Pick<Session, 'environment' | 'environment_truncated'> {
  const { environment } = record.facts;
  const shell = shellNow(record);
  if (shell === null) return { environment };
  if (shell.environment === null) return { environment, environment_truncated: true };
  const now = { ...environment };
  for (const [name, value] of Object.entries(shell.environment)) {
    if (value === null) delete now[name];
    else now[name] = value;
  }
  return { environment: now };
}

export function listEntry(record: SessionRecord, state: SessionRecord['state']): SessionListEntry {
  const { facts } = record;
  return {
    session_id: facts.sessionId,
    state,
    image: facts.image,
    metadata: facts.metadata,
    labels: facts.labels,
    created_at: new Date(facts.createdAtMs).toISOString(),
  };
}
