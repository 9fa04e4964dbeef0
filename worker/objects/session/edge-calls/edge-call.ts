/** A call that is about to run at the edge, as its session writes it down. */
import type { SealedCallback } from '../../../../shared/callback.ts';
import type { Execution } from '../../../../shared/execution.ts';
import type { Idempotency } from '../../../middleware/idempotency.ts';
import type { MadeCall } from '../edge-receipts/made.ts';

export interface EdgeCall {
  execution: Execution;
  made: MadeCall;
  idempotency: Idempotency | null;
  timeoutMs: number;
  /** Where its end is told. */
  callback?: SealedCallback | null;
}
