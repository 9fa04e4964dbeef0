/** What others may ask of the audit object. */
import type { AuditEntry } from '../../../shared/audit.ts';
import type { Outcome } from '../../../shared/errors.ts';

export type Act = Omit<AuditEntry, 'n' | 'at' | 'status' | 'code'>;

export interface AuditPort {
  /** Writes that an act is about to be done, and gives its number. */
  begin(act: Act): Promise<Outcome<number>>;
  end(n: number, ending: { status: number; code: string | null }): Promise<Outcome<null>>;
  /** Newest first, those before number `before`. */
  list(page: { before: number; limit: number }): Promise<Outcome<AuditEntry[]>>;
}
