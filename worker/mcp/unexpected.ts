/** A fault of the gateway in a request over MCP: in the log with its reason, and to the client with where to find it. */
import { type Failure, failure } from '../../shared/errors.ts';

export function unexpected(error: unknown, requestId: string): Failure {
  const { name, message, stack } = error instanceof Error ? error : new Error('not an error');
  console.error(
    JSON.stringify({
      level: 'error',
      event: 'mcp_call_failed',
      request_id: requestId,
      error: name,
      detail: message.slice(0, 500),
      stack: stack?.slice(0, 2_000),
    }),
  );
  return failure('internal', `the gateway failed; request ${requestId} finds the reason`);
}
