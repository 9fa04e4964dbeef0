/** What others may ask of an object of MCP calls. */
import { KEYS_LIVE_MS } from '../session/retention/retention.ts';

/** How long after it was made a call may be come back for: as long as a session that ended with it keeps its result. */
export const MCP_RESUMABLE_MS = KEYS_LIVE_MS;

export interface McpCall {
  /** The request id as JSON: 7 and "7" are two ids. */
  requestId: string;
  /** Names this entry, whatever request id it has. */
  token: string;
  /** The call that it attends: one may be attended more than once. */
  callId: string;
}

export interface McpCallsPort {
  /** Pending for as long as the call may be cancelled; then whether it was. */
  untilCancelled(call: McpCall): Promise<boolean>;
  /** The call has ended. */
  release(token: string): Promise<void>;
  /** Cancels the call with this request id; without one, or with several, nothing happens. */
  cancel(requestId: string): Promise<void>;
  /** Known for as long as somebody may come back for the answer of the call. */
  wasCancelled(callId: string): Promise<boolean>;
}
