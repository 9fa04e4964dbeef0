/**
 * The tenant's ledger: what is limited, who holds how much of it, and what was used on which day. Everything is reserved
 * here before it is admitted and settled by what hosts have signed, so an exact limit stays exact however many ask at once.
 */
import { type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { LimitSet, TenantLimits, Usage, UsageReport } from '../../../../shared/tenant.ts';
import type { LimitTerms, SessionAccount, Wanted } from './account.ts';
import { refusalOf } from './check.ts';
import { Claims } from './claims.ts';
import type { Holds, StorageHold } from './holds/holds.ts';
import { Standing } from './standing.ts';
import { type AccountRow, DAY_MS, type DayRow, dayOf, type LedgerStore, WHOLE_TENANT } from './store.ts';

/** A create that has not come to a session by then never will. */
const HELD_MS = 180_000;
/** By then nobody reports of a session any more that is over. */
const OVER_KEPT_MS = 2 * DAY_MS;

export class Ledger {
  readonly #store: LedgerStore;
  readonly #standing = new Standing();
  readonly #holds: Holds;
  readonly #claims: Claims;

  constructor(store: LedgerStore, holds: Holds) {
    this.#store = store;
    this.#holds = holds;
    this.#claims = new Claims(store, { standing: this.#standing, holds });
    for (const row of store.accountsThatCount()) this.#standing.changed(undefined, row);
  }

  get limits(): TenantLimits {
    return this.#claims.limits;
  }

  setLimits(limits: TenantLimits): void {
    this.#claims.setLimits(limits);
  }

  limitsOf(subject: string): LimitSet {
    return this.#claims.limitsOf(subject);
  }

  /** Reserves a place for a session; one that has its place keeps it. `holder` is the request that asks. */
  hold(
    { sessionId, subject, holder }: { sessionId: string; subject: string; holder: string },
    nowMs: number,
  ): Outcome<null> {
    this.#expire(nowMs);
    const known = this.#store.account(sessionId);
    if (known?.state === 'live' || known?.state === 'suspended') return success(null);
    if (known?.state !== 'held') {
      const refused = refusalOf(this.#claims.ofSession(subject), nowMs);
      if (refused !== undefined) return refused;
    }
    this.#put(known, { ...emptyRow(sessionId, subject, nowMs), state: 'held', holder });
    return success(null);
  }

  /** Gives the place back, unless a session has come of it or another request holds it too. */
  release({ sessionId, holder }: { sessionId: string; holder: string }): void {
    const known = this.#store.account(sessionId);
    if (known?.state !== 'held' || known.holder !== holder) return;
    this.#store.removeAccount(sessionId);
    this.#standing.changed(known, undefined);
  }

  /** Takes in what something stored takes, or says what more of it would pass. */
  holdStorage(hold: StorageHold, nowMs: number): Outcome<null> {
    const known = this.#holds.find(hold.id);
    if (known !== undefined && hold.n <= known.n) return success(null);
    const more = hold.bytes - (known?.bytes ?? 0);
    if (more > 0 && hold.isStored !== true) {
      const refused = refusalOf(this.#claims.ofHold(hold, more), nowMs);
      if (refused !== undefined) return refused;
    }
    this.#holds.put(hold, nowMs);
    return success(null);
  }

  /** There is a session now. */
  begin(sessionId: string, subject: string, nowMs: number): void {
    const known = this.#store.account(sessionId);
    // What comes late of a session that is over does not make it live.
    // A suspended one takes its place itself.
    if (known?.state === 'live' || known?.state === 'suspended' || known?.state === 'over') return;
    if (known?.state === 'failed') {
      this.#put(known, { ...known, state: 'live', changed_at: nowMs });
      return;
    }
    this.#put(known, { ...emptyRow(sessionId, subject, nowMs), state: 'live' });
    this.#store.use(dayOf(nowMs), subject, {
      sessions: 1,
      executions: 0,
      cpuMs: 0,
      egressBytes: 0,
      outputBytes: 0,
    });
  }

  /** The session is over: it counts no more, and what it still reports is only added to what was used. */
  end(sessionId: string, nowMs: number, state: 'failed' | 'over' = 'over'): void {
    const known = this.#store.account(sessionId);
    if (known === undefined) return;
    this.#put(known, {
      ...known,
      state,
      open: 0,
      reserved_cpu_ms: 0,
      storage_bytes: 0,
      changed_at: nowMs,
    });
  }

  /** Takes in how a session stands, and admits what more it wants: an execution, or its place after a suspension. */
  account(account: SessionAccount, wanted: Wanted | null, nowMs: number): Outcome<LimitTerms> {
    const row = this.#settle(account, nowMs);
    const refused = wanted === null ? undefined : this.#admit(row, wanted, nowMs);
    return refused ?? success(this.terms(account.subject));
  }

  #admit(row: AccountRow, wanted: Wanted, nowMs: number): Failure | undefined {
    if ('place' in wanted) {
      if (row.state !== 'suspended') return undefined;
      const refused = refusalOf(this.#claims.ofPlace(row.subject), nowMs);
      if (refused === undefined) this.#put(row, { ...row, state: 'live' });
      return refused;
    }
    const refused = refusalOf(this.#claims.ofExecution(row, wanted, nowMs), nowMs);
    if (refused !== undefined) return refused;
    this.#put(row, { ...row, open: row.open + 1, reserved_cpu_ms: row.reserved_cpu_ms + wanted.cpuMs });
    return undefined;
  }

  /** Those in snapshots too. */
  get sessionCount(): number {
    const { sessions, suspended } = this.#standing.tenant;
    return sessions + suspended;
  }

  terms(subject: string): LimitTerms {
    const own = this.#claims.limitsOf(subject);
    const { tenant, session } = this.limits;
    const isLimited = (set: LimitSet) =>
      [set.concurrent_executions, set.cpu_seconds_per_day, set.egress_bytes_per_day, set.storage_bytes].some(
        (limit) => limit !== null,
      );
    const limited =
      isLimited(tenant) || isLimited(own) || Object.values(session).some((limit) => limit !== null);
    return {
      limited,
      counted: tenant.concurrent_executions !== null || own.concurrent_executions !== null,
    };
  }

  /** What sessions that may be at work have to do about limits, by their ids. */
  termsAfter(sessionId: string | null, limit: number): (LimitTerms & { sessionId: string })[] {
    return this.#store
      .liveAfter(sessionId, limit)
      .map((row) => ({ sessionId: row.session_id, ...this.terms(row.subject) }));
  }

  report(tenant: string, { from, to }: { from: string; to: string }): UsageReport {
    const { sessions, suspended, open, reservedCpuMs, storageBytes } = this.#standing.tenant;
    return {
      tenant,
      days: this.#store.days(WHOLE_TENANT, from, to).map((row) => ({ day: row.day, ...usageOf(row) })),
      now: {
        concurrent_sessions: sessions,
        suspended_sessions: suspended,
        concurrent_executions: open,
        storage_bytes: storageBytes + this.#holds.bytes,
        reserved_cpu_seconds: reservedCpuMs / 1_000,
      },
      limits: this.limits,
    };
  }

  subjectsOf(
    day: string,
    { after, limit }: { after: string; limit: number },
  ): (Usage & { subject: string })[] {
    return this.#store
      .subjectsOfDay(day, after, limit)
      .map((row) => ({ subject: row.subject, ...usageOf(row) }));
  }

  /** What was used since the report before goes to this day; where the session stands replaces where it stood. */
  #settle(account: SessionAccount, nowMs: number): AccountRow {
    const { sessionId, subject, used } = account;
    const known = this.#store.account(sessionId);
    const before = known ?? { ...emptyRow(sessionId, subject, nowMs), state: 'live' as const };
    if (known !== undefined && account.n <= known.n) return known;
    const since = {
      executions: Math.max(0, used.executions - before.executions),
      cpuMs: Math.max(0, used.cpuMs - before.cpu_ms),
      egressBytes: Math.max(0, used.egressBytes - before.egress_bytes),
      outputBytes: Math.max(0, used.outputBytes - before.output_bytes),
    };
    const isOver = before.state === 'over' || before.state === 'failed';
    const row: AccountRow = {
      ...before,
      state: isOver ? before.state : account.suspended ? 'suspended' : 'live',
      holder: null,
      changed_at: nowMs,
      n: account.n,
      open: isOver ? 0 : account.open,
      reserved_cpu_ms: isOver ? 0 : account.reservedCpuMs,
      storage_bytes: isOver ? 0 : account.storageBytes,
      executions: before.executions + since.executions,
      cpu_ms: before.cpu_ms + since.cpuMs,
      egress_bytes: before.egress_bytes + since.egressBytes,
      output_bytes: before.output_bytes + since.outputBytes,
    };
    this.#put(known, row);
    if (Object.values(since).some((amount) => amount > 0)) {
      this.#store.use(dayOf(nowMs), before.subject, { ...since, sessions: 0 });
    }
    return row;
  }

  #put(before: AccountRow | undefined, after: AccountRow): void {
    this.#store.putAccount(after);
    this.#standing.changed(before, after);
  }

  #expire(nowMs: number): void {
    const expired = [
      ...this.#store.accountsBefore('held', nowMs - HELD_MS),
      ...this.#store.accountsBefore('failed', nowMs - OVER_KEPT_MS),
      ...this.#store.accountsBefore('over', nowMs - OVER_KEPT_MS),
    ];
    for (const row of expired) {
      this.#store.removeAccount(row.session_id);
      this.#standing.changed(row, undefined);
    }
  }
}

function emptyRow(sessionId: string, subject: string, nowMs: number): Omit<AccountRow, 'state'> {
  return {
    session_id: sessionId,
    subject,
    holder: null,
    changed_at: nowMs,
    n: 0,
    open: 0,
    reserved_cpu_ms: 0,
    storage_bytes: 0,
    executions: 0,
    cpu_ms: 0,
    egress_bytes: 0,
    output_bytes: 0,
  };
}

function usageOf(row: DayRow): Usage {
  return {
    sessions: row.sessions,
    executions: row.executions,
    cpu_seconds: row.cpu_ms / 1_000,
    egress_bytes: row.egress_bytes,
    output_bytes: row.output_bytes,
  };
}

/** For a range of days that a caller names. */
export function daysFault({ from, to }: { from: string; to: string }): Failure | undefined {
  if (from <= to) return undefined;
  return failure('invalid_request', 'the first day is after the last', {
    violations: [{ path: 'query.from', expected: 'a day that is not after `to`' }],
  });
}
