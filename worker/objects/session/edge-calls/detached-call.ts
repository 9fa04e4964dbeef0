/** A call of the gateway that its session is to make, in the name of who asked for it. */
import type { SealedCallback } from '../../../../shared/callback.ts';
import type { Idempotency } from '../../../middleware/idempotency.ts';
import type { Owner } from '../../owner.ts';

export interface DetachedEdgeCall {
  executionId: string;
  sessionId: string;
  /** With the rights that the token gave. */
  owner: Owner;
  asked: { tool_name: string; arguments: Record<string, unknown>; timeout_ms: number };
  idempotency: Idempotency | null;
  /** Where its end is told. */
  callback: SealedCallback | null;
  receivedMs: number;
}
