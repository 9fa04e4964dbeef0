/**
 * Lets go what the tenant's operator wants kept no longer, a few executions at a time: what they wrote and gave, and in the
 * end that they were. Receipts stay, for they hold digests alone and the chain would break without them.
 */
import type { Outcome } from '../../../../shared/errors.ts';
import type { Retention } from '../../../../shared/retention.ts';
import { logWarning } from '../../log.ts';
import type { SessionRow } from '../rows/session-row.ts';

const DAY_MS = 86_400_000;
/** Between two rounds: calls come first. */
const NEXT_ROUND_MS = 1_000;
const NOT_HEARD_RETRY_MS = 3_600_000;

/** What ended before these moments goes; null where it stays. */
export interface KeptSince {
  executionsMs: number | null;
  outputsMs: number | null;
}

export interface RetentionSweepPort {
  retention(tenant: string): Promise<Outcome<Retention>>;
  /** Lets a few go, in one write; true where there are more. */
  expire(since: KeptSince): boolean;
  look(): void;
}

export class RetentionSweep {
  readonly #row: SessionRow;
  readonly #port: RetentionSweepPort;

  constructor(row: SessionRow, port: RetentionSweepPort) {
    this.#row = row;
    this.#port = port;
  }

  /** Once a day from its first call on: what is wanted may change. */
  get dueAtMs(): number | null {
    return this.#row.isLive ? this.#row.record.retentionAtMs : null;
  }

  /** There is something that may have to go. A session that ends with its one call has nothing to look after. */
  begin(): void {
    const record = this.#row.maybe;
    if (record === undefined || record.retentionAtMs !== null || record.facts.ephemeral) return;
    if (!this.#row.isLive) return;
    this.#row.patch({ retentionAtMs: Date.now() + DAY_MS });
    this.#port.look();
  }

  /** From the alarm. */
  async check(nowMs: number): Promise<void> {
    if (this.dueAtMs === null || nowMs < this.dueAtMs) return;
    const said = await this.#port.retention(this.#row.record.facts.tenant);
    if (!this.#row.isLive) return;
    if (!said.ok) {
      logWarning('retention_not_known', { code: said.code, detail: said.detail });
      this.#row.patch({ retentionAtMs: nowMs + NOT_HEARD_RETRY_MS });
      return;
    }
    const hasMore = this.#port.expire(keptSince(said.value, nowMs));
    this.#row.patch({ retentionAtMs: nowMs + (hasMore ? NEXT_ROUND_MS : DAY_MS) });
  }
}

function keptSince({ executions_days, outputs_days }: Retention, nowMs: number): KeptSince {
  const since = (days: number | null) => (days === null ? null : nowMs - days * DAY_MS);
  return { executionsMs: since(executions_days), outputsMs: since(outputs_days) };
}
