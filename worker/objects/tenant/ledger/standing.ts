/** What counts at this moment, of the tenant and of each subject: kept in memory, made from the rows at the start. */
import type { AccountRow } from './store.ts';

export interface Counts {
  /** Those that hold a host, or may. */
  sessions: number;
  suspended: number;
  open: number;
  reservedCpuMs: number;
  storageBytes: number;
}

const NOTHING: Readonly<Counts> = { sessions: 0, suspended: 0, open: 0, reservedCpuMs: 0, storageBytes: 0 };

export class Standing {
  readonly #tenant: Counts = { ...NOTHING };
  readonly #subjects = new Map<string, Counts>();

  get tenant(): Readonly<Counts> {
    return this.#tenant;
  }

  of(subject: string): Readonly<Counts> {
    return this.#subjects.get(subject) ?? NOTHING;
  }

  /** A row as it was, or none, becomes one as it is, or none. */
  changed(before: AccountRow | undefined, after: AccountRow | undefined): void {
    if (before !== undefined) this.#add(before, -1);
    if (after !== undefined) this.#add(after, 1);
  }

  #add(row: AccountRow, sign: 1 | -1): void {
    if (row.state === 'over' || row.state === 'failed') return;
    const subject = this.#subjects.get(row.subject) ?? { ...NOTHING };
    this.#subjects.set(row.subject, subject);
    for (const counts of [this.#tenant, subject]) {
      if (row.state === 'suspended') counts.suspended += sign;
      else counts.sessions += sign;
      counts.open += sign * row.open;
      counts.reservedCpuMs += sign * row.reserved_cpu_ms;
      counts.storageBytes += sign * row.storage_bytes;
    }
    if (subject.sessions + subject.suspended === 0) this.#subjects.delete(row.subject);
  }
}
