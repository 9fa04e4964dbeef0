/** What others may ask of the object of one call that the gateway makes in no session, for the one key of its caller. */
import type { Envelope } from '../../../shared/dsse.ts';
import type { Outcome } from '../../../shared/errors.ts';
import type { Execution } from '../../../shared/execution.ts';
import type { EdgeCall } from '../session/edge-calls/edge-call.ts';

/** The tenant, and the id of the session that it says it was made in. */
export interface KeyedCallPlace {
  tenant: string;
  sessionId: string;
}

export interface KeyedCallPort {
  /** Null where it may be made now, once; otherwise the first one, as far as it is. */
  begin(place: KeyedCallPlace, call: Omit<EdgeCall, 'idempotency'>): Promise<Outcome<Execution | null>>;
  /** How the first one ended, once that is known. */
  ended(): Promise<Outcome<Execution>>;
  /** Gives the receipt; null for one that is taken to have ended otherwise. */
  end(execution: Execution): Promise<Outcome<Envelope | null>>;
}
