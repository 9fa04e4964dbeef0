/** What of a session may be changed while it lives. */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Session, UpdateSession } from '../../../../shared/session.ts';
import type { Env } from '../../../env.ts';
import type { Caller } from '../../caller.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { SessionFacts, SessionRecord } from '../rows/records.ts';
import type { SessionRuntime } from '../runtime.ts';
import { listEntry } from '../view.ts';
import { notFound, viewOf } from './creation.ts';

export async function updateSession(
  runtime: SessionRuntime,
  env: Env,
  { caller, update }: { caller: Caller; update: UpdateSession },
): Promise<Outcome<Session>> {
  const { row } = runtime;
  const record = row.ownedBy(caller);
  if (record === undefined || record.state === 'destroying') return notFound();
  if (record.state === 'error') {
    return failure('session_failed', `the session has failed: ${record.errorCode ?? 'unknown'}`);
  }
  const nowMs = Date.now();
  row.patch({ facts: changedFacts(record.facts, update), ...lifetimeOf(record, update, nowMs) });
  runtime.look();
  const entry = listEntry(row.record, row.record.state);
  try {
    await env.TENANT.getByName(caller.tenant).updateEntry({ subject: caller.subject, entry });
  } catch (error: unknown) {
    // The next change finds its way; the session itself says what holds.
    logWarning('session_not_indexed', { session_id: record.facts.sessionId, detail: messageOf(error) });
  }
  return success(viewOf(runtime));
}

function changedFacts(facts: SessionFacts, update: UpdateSession): SessionFacts {
  const { labels, metadata, idle_timeout_s: idleTimeoutS } = update;
  return {
    ...facts,
    ...(labels === undefined ? {} : { labels: withChanges(facts.labels, labels) }),
    ...(metadata === undefined ? {} : { metadata }),
    ...(idleTimeoutS === undefined ? {} : { idleTimeoutMs: idleTimeoutS * 1_000 }),
  };
}

/** As a JSON merge patch: what is null goes, what is not named stays. */
function withChanges(
  labels: Record<string, string>,
  changes: Record<string, string | null>,
): Record<string, string> {
  const kept = Object.entries({ ...labels, ...changes }).filter(
    (entry): entry is [string, string] => entry[1] !== null,
  );
  return Object.fromEntries(kept);
}

function lifetimeOf(
  { pausedAtMs }: SessionRecord,
  { lifetime_s: lifetimeS }: UpdateSession,
  nowMs: number,
): Partial<SessionRecord> {
  if (lifetimeS === undefined) return {};
  // A pause that goes on is added at its end as a whole: what of it has passed already must not count.
  const pausedMs = pausedAtMs === null ? 0 : Math.max(0, nowMs - pausedAtMs);
  return { expiresAtMs: lifetimeS === null ? null : nowMs + lifetimeS * 1_000 - pausedMs };
}
