/** What is used of each limit, and what more is wanted of it: for all that asks the ledger. */
import { type LimitScope, type LimitSet, NO_LIMITS, type TenantLimits } from '../../../../shared/tenant.ts';
import type { WantedExecution } from './account.ts';
import type { Claim } from './check.ts';
import { type Holds, outputsHoldId, type StorageHold } from './holds/holds.ts';
import type { Counts, Standing } from './standing.ts';
import { type AccountRow, DAY_MS, dayOf, type LedgerStore, WHOLE_TENANT } from './store.ts';

interface Scope {
  scope: LimitScope;
  whose: string;
  limits: LimitSet;
  counts: Readonly<Counts>;
  /** What sessions keep in their rows, and what is held beside them. */
  storedBytes: number;
}

export class Claims {
  readonly #store: LedgerStore;
  readonly #standing: Standing;
  readonly #holds: Holds;
  #limits: TenantLimits;

  constructor(store: LedgerStore, { standing, holds }: { standing: Standing; holds: Holds }) {
    this.#store = store;
    this.#standing = standing;
    this.#holds = holds;
    this.#limits = store.limits() ?? NO_LIMITS;
  }

  get limits(): TenantLimits {
    return this.#limits;
  }

  setLimits(limits: TenantLimits): void {
    this.#store.setLimits(limits);
    this.#limits = limits;
  }

  limitsOf(subject: string): LimitSet {
    return Object.hasOwn(this.#limits.subjects, subject)
      ? (this.#limits.subjects[subject] ?? this.#limits.subject)
      : this.#limits.subject;
  }

  /** A new session: it counts as one, and nothing new begins where the storage is full. */
  ofSession(subject: string): Claim[] {
    const stored = this.#scopes(subject).map(({ scope, limits, storedBytes }) =>
      storageClaim(scope, limits, storedBytes),
    );
    return [...this.ofPlace(subject), ...stored];
  }

  /** A place among the concurrent sessions. */
  ofPlace(subject: string): Claim[] {
    const name = 'concurrent_sessions';
    return this.#scopes(subject).map(({ scope, limits, counts }) => {
      return { name, scope, limit: limits[name], used: counts.sessions, wanted: 1, resetsAtMs: null };
    });
  }

  ofExecution(row: AccountRow, { cpuMs }: WantedExecution, nowMs: number): Claim[] {
    const day = dayOf(nowMs);
    const resetsAtMs = Date.parse(day) + DAY_MS;
    const byScope = this.#scopes(row.subject).flatMap(
      ({ scope, limits, counts, storedBytes, whose }): Claim[] => {
        const today = this.#store.day(day, whose);
        return [
          {
            name: 'concurrent_executions',
            scope,
            limit: limits.concurrent_executions,
            used: counts.open,
            wanted: 1,
            resetsAtMs: null,
          },
          {
            name: 'cpu_seconds_per_day',
            scope,
            limit: limits.cpu_seconds_per_day,
            used: ((today?.cpu_ms ?? 0) + counts.reservedCpuMs) / 1_000,
            reserved: counts.reservedCpuMs / 1_000,
            wanted: cpuMs / 1_000,
            resetsAtMs,
          },
          {
            name: 'egress_bytes_per_day',
            scope,
            limit: limits.egress_bytes_per_day,
            used: today?.egress_bytes ?? 0,
            // How much it will move nobody knows before: it begins while something is left.
            wanted: 1,
            resetsAtMs,
          },
          storageClaim(scope, limits, storedBytes),
        ];
      },
    );
    return [...this.#sessionClaims(row, cpuMs), ...byScope];
  }

  #sessionClaims(row: AccountRow, cpuMs: number): Claim[] {
    const { session } = this.#limits;
    const of = (name: keyof typeof session, used: number, wanted: number, reserved = 0): Claim => ({
      name,
      scope: 'session',
      limit: session[name],
      used,
      wanted,
      reserved,
      resetsAtMs: null,
    });
    const reserved = row.reserved_cpu_ms / 1_000;
    return [
      of('executions', row.executions + row.open, 1),
      of('cpu_seconds', row.cpu_ms / 1_000 + reserved, cpuMs / 1_000, reserved),
      of('egress_bytes', row.egress_bytes, 1),
      this.#sessionStorageClaim(row),
    ];
  }

  /** `wanted` bytes more of the storage. */
  ofHold({ subject, sessionId }: StorageHold, wanted: number): Claim[] {
    const byScope = this.#scopes(subject).map(({ scope, limits, storedBytes }) => ({
      ...storageClaim(scope, limits, storedBytes),
      wanted,
    }));
    const account = sessionId === undefined ? undefined : this.#store.account(sessionId);
    if (account === undefined) return byScope;
    return [{ ...this.#sessionStorageClaim(account), wanted }, ...byScope];
  }

  #sessionStorageClaim(row: AccountRow): Claim {
    const outputs = this.#holds.find(outputsHoldId(row.session_id))?.bytes ?? 0;
    return {
      name: 'storage_bytes',
      scope: 'session',
      limit: this.#limits.session.storage_bytes,
      used: row.storage_bytes + outputs,
      wanted: 1,
      resetsAtMs: null,
    };
  }

  #scopes(subject: string): Scope[] {
    const [own, all] = [this.#standing.of(subject), this.#standing.tenant];
    return [
      {
        scope: 'subject',
        whose: subject,
        limits: this.limitsOf(subject),
        counts: own,
        storedBytes: own.storageBytes + this.#holds.of(subject),
      },
      {
        scope: 'tenant',
        whose: WHOLE_TENANT,
        limits: this.#limits.tenant,
        counts: all,
        storedBytes: all.storageBytes + this.#holds.bytes,
      },
    ];
  }
}

function storageClaim(scope: LimitScope, limits: LimitSet, used: number): Claim {
  const name = 'storage_bytes';
  return { name, scope, limit: limits[name], used, wanted: 1, resetsAtMs: null };
}
