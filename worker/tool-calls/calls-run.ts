/** What the calls of a message run with, and how each may end. */
import type { Program } from '../../shared/code-mode.ts';
import type { Outcome } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import type { OwnSession } from '../calls/own-session.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import { Refusal } from '../middleware/refusal.ts';
import type { Exchange } from '../routing/route.ts';
import type { PreparedCall } from './prepare.ts';

export interface CallsRun {
  exchange: Exchange<'tenant'>;
  session: OwnSession;
  prepared: readonly PreparedCall[];
  keyOf: (index: number) => Promise<Idempotency | null>;
}

export interface CallEnd {
  execution: Execution;
  /** Of a call of the tool `code`. It has not ended where it waits for somebody outside. */
  program?: Program;
}

/** Failures that are the client's to mend: the model cannot. */
const ENDS_THE_REQUEST: ReadonlySet<string> = new Set([
  'not_found',
  'session_deleted',
  'session_not_running',
  'session_failed',
  'idempotency_conflict',
  'idempotency_in_progress',
]);

/** An outcome that a model can be told of; any other ends the request. */
export function forModel<T>(outcome: Outcome<T>): Outcome<T> {
  if (!outcome.ok && ENDS_THE_REQUEST.has(outcome.code)) throw new Refusal(outcome);
  return outcome;
}
