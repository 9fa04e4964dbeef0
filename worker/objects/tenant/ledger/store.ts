/** SQL of the tenant's ledger: its limits, an account for each session, and what was used on each day. */
import * as z from 'zod';
import { type TenantLimits, TenantLimitsSchema } from '../../../../shared/tenant.ts';
import type { UsedTotals } from './account.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS tenant_limits (id INTEGER PRIMARY KEY CHECK (id = 1), limits TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS session_account (
  session_id TEXT PRIMARY KEY, subject TEXT NOT NULL, state TEXT NOT NULL, holder TEXT, changed_at INTEGER NOT NULL,
  n INTEGER NOT NULL, open INTEGER NOT NULL, reserved_cpu_ms INTEGER NOT NULL, storage_bytes INTEGER NOT NULL,
  executions INTEGER NOT NULL, cpu_ms INTEGER NOT NULL, egress_bytes INTEGER NOT NULL, output_bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS session_account_by_state ON session_account (state, changed_at);
CREATE TABLE IF NOT EXISTS usage_day (
  day TEXT NOT NULL, subject TEXT NOT NULL,
  sessions INTEGER NOT NULL, executions INTEGER NOT NULL, cpu_ms INTEGER NOT NULL,
  egress_bytes INTEGER NOT NULL, output_bytes INTEGER NOT NULL,
  PRIMARY KEY (day, subject)
) WITHOUT ROWID;
`;

/** `held`: reserved for a create under way. `suspended`: there, without a host. `failed` may live again; `over` is kept so that a late report counts once. */
const AccountRowSchema = z.object({
  session_id: z.string(),
  subject: z.string(),
  state: z.enum(['held', 'live', 'suspended', 'failed', 'over']),
  holder: z.string().nullable(),
  changed_at: z.number(),
  n: z.number(),
  open: z.number(),
  reserved_cpu_ms: z.number(),
  storage_bytes: z.number(),
  executions: z.number(),
  cpu_ms: z.number(),
  egress_bytes: z.number(),
  output_bytes: z.number(),
});
export type AccountRow = z.infer<typeof AccountRowSchema>;

const LimitsRowSchema = z.object({
  limits: z.string().transform((text) => TenantLimitsSchema.parse(JSON.parse(text))),
});

const DayRowSchema = z.object({
  day: z.string(),
  subject: z.string(),
  sessions: z.number(),
  executions: z.number(),
  cpu_ms: z.number(),
  egress_bytes: z.number(),
  output_bytes: z.number(),
});
export type DayRow = z.infer<typeof DayRowSchema>;

/** The row of the tenant as a whole; no subject has an empty name. */
export const WHOLE_TENANT = '';
/** Account books are kept longer than anybody's bills are open; who used how much of it is not. */
const DAYS_KEPT = 400;
const DAYS_OF_SUBJECTS_KEPT = 35;
export const DAY_MS = 86_400_000;

export class LedgerStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  limits(): TenantLimits | undefined {
    const [row] = this.#sql.exec('SELECT limits FROM tenant_limits').toArray();
    return row === undefined ? undefined : LimitsRowSchema.parse(row).limits;
  }

  setLimits(limits: TenantLimits): void {
    this.#sql.exec(
      'INSERT INTO tenant_limits (id, limits) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET limits = ?1',
      JSON.stringify(limits),
    );
  }

  account(sessionId: string): AccountRow | undefined {
    const [row] = this.#sql.exec('SELECT * FROM session_account WHERE session_id = ?', sessionId).toArray();
    return row === undefined ? undefined : AccountRowSchema.parse(row);
  }

  accountsThatCount(): AccountRow[] {
    return this.#sql
      .exec("SELECT * FROM session_account WHERE state IN ('held', 'live', 'suspended')")
      .toArray()
      .map((row) => AccountRowSchema.parse(row));
  }

  /** Those that may be at work, by their ids. */
  liveAfter(sessionId: string | null, limit: number): AccountRow[] {
    return this.#sql
      .exec(
        "SELECT * FROM session_account WHERE state = 'live' AND session_id > ? ORDER BY session_id LIMIT ?",
        sessionId ?? '',
        limit,
      )
      .toArray()
      .map((row) => AccountRowSchema.parse(row));
  }

  putAccount(row: AccountRow): void {
    const columns = Object.keys(row);
    this.#sql.exec(
      `INSERT OR REPLACE INTO session_account (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')})`,
      ...Object.values(row),
    );
  }

  removeAccount(sessionId: string): void {
    this.#sql.exec('DELETE FROM session_account WHERE session_id = ?', sessionId);
  }

  accountsBefore(state: 'held' | 'failed' | 'over', changedAtMs: number): AccountRow[] {
    return this.#sql
      .exec('SELECT * FROM session_account WHERE state = ? AND changed_at < ? LIMIT 1000', state, changedAtMs)
      .toArray()
      .map((row) => AccountRowSchema.parse(row));
  }

  day(day: string, subject: string): DayRow | undefined {
    const [row] = this.#sql
      .exec('SELECT * FROM usage_day WHERE day = ? AND subject = ?', day, subject)
      .toArray();
    return row === undefined ? undefined : DayRowSchema.parse(row);
  }

  /** Adds to the day of the tenant and to that of the subject. */
  use(day: string, subject: string, used: UsedTotals & { sessions: number }): void {
    for (const whose of [WHOLE_TENANT, subject]) {
      const isFirst = whose === WHOLE_TENANT && this.day(day, whose) === undefined;
      this.#sql.exec(
        `INSERT INTO usage_day (day, subject, sessions, executions, cpu_ms, egress_bytes, output_bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (day, subject) DO UPDATE SET sessions = sessions + ?3, executions = executions + ?4,
           cpu_ms = cpu_ms + ?5, egress_bytes = egress_bytes + ?6, output_bytes = output_bytes + ?7`,
        day,
        whose,
        used.sessions,
        used.executions,
        used.cpuMs,
        used.egressBytes,
        used.outputBytes,
      );
      if (isFirst) this.#forgetDaysBefore(day);
    }
  }

  #forgetDaysBefore(day: string): void {
    const before = (days: number) => dayOf(Date.parse(day) - days * DAY_MS);
    this.#sql.exec('DELETE FROM usage_day WHERE day < ?', before(DAYS_KEPT));
    this.#sql.exec(
      'DELETE FROM usage_day WHERE day < ? AND subject <> ?',
      before(DAYS_OF_SUBJECTS_KEPT),
      WHOLE_TENANT,
    );
  }

  days(subject: string, from: string, to: string): DayRow[] {
    return this.#sql
      .exec(
        'SELECT * FROM usage_day WHERE subject = ? AND day >= ? AND day <= ? ORDER BY day',
        subject,
        from,
        to,
      )
      .toArray()
      .map((row) => DayRowSchema.parse(row));
  }

  subjectsOfDay(day: string, after: string, limit: number): DayRow[] {
    return this.#sql
      .exec(
        'SELECT * FROM usage_day WHERE day = ? AND subject > ? ORDER BY subject LIMIT ?',
        day,
        after,
        limit,
      )
      .toArray()
      .map((row) => DayRowSchema.parse(row));
  }
}

export function dayOf(timeMs: number): string {
  return new Date(timeMs).toISOString().slice(0, 10);
}
