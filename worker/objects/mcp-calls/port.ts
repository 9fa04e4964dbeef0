/** What others may ask of an object of MCP calls. */
export interface McpCall {
  /** The request id as JSON: 7 and "7" are two ids. */
  requestId: string;
  /** Names this entry, whatever request id it has. */
  token: string;
}

export interface McpCallsPort {
  /** Pending for as long as the call may be cancelled; then whether it was. */
  untilCancelled(call: McpCall): Promise<boolean>;
  /** The call has ended. */
  release(token: string): Promise<void>;
  /** Cancels the call with this request id; without one, or with several, nothing happens. */
  cancel(requestId: string): Promise<void>;
}
