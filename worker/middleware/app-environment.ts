/** What every handler of the app finds in its context. */
import type { Env } from '../env.ts';
import type { Answered } from '../load/shed-load.ts';
import type { RateState } from './admission.ts';

export interface AppEnvironment {
  Bindings: Env;
  Variables: {
    /** To be called when the request is answered, where its load is counted. */
    answered?: Answered;
    /** What of its time the request waited for a program, or for another call of its session; unknown where nobody said. */
    elsewhereMs?: number;
    requestId: string;
    /** Epoch milliseconds at which the request came in. */
    receivedMs: number;
    /** The tenant's request budget, once the caller is known. */
    rate?: RateState;
    /** `operationId` of the route. */
    operation?: string;
    /** Code of the refusal. */
    refusedAs?: string;
    /** The caller's, once it is known. */
    tenant?: string;
  };
}
