/** Cancellation by `notifications/cancelled`, which is a request of its own. */
import { sha256Hex } from '../../shared/digest.ts';
import { randomHandle } from '../../shared/ids.ts';
import type { Env } from '../env.ts';
import type { Caller } from '../objects/caller.ts';

export type RequestId = string | number;

export interface CancellableCall {
  signal: AbortSignal;
  /** The call has ended; it can no longer be cancelled. */
  leave: () => Promise<void>;
}

/** The calls of one MCP session, or of a subject's clients without one. */
export class CallCancellation {
  readonly #env: Env;
  readonly #name: string;

  private constructor(env: Env, name: string) {
    this.#env = env;
    this.#name = name;
  }

  static async of(env: Env, caller: Caller, mcpSessionId: string | null): Promise<CallCancellation> {
    const client = mcpSessionId ?? `subject:${await sha256Hex(caller.subject)}`;
    return new CallCancellation(env, `${caller.tenant}:${client}`);
  }

  enter(requestId: RequestId): CancellableCall {
    const controller = new AbortController();
    const token = randomHandle();
    // One stub for both calls: they arrive in their order.
    const stub = this.#env.MCP_CALLS.getByName(this.#name);
    const waiting = stub.untilCancelled({ requestId: JSON.stringify(requestId), token }).then(
      (isCancelled) => {
        if (isCancelled) controller.abort();
      },
      // Without the object the call runs on, and only cannot be cancelled.
      (error: unknown) => logUnreachable(error),
    );
    return {
      signal: controller.signal,
      leave: async () => {
        await stub.release(token).catch(logUnreachable);
        await waiting;
      },
    };
  }

  async cancel(requestId: RequestId): Promise<void> {
    await this.#env.MCP_CALLS.getByName(this.#name).cancel(JSON.stringify(requestId)).catch(logUnreachable);
  }
}

function logUnreachable(error: unknown): void {
  const detail = error instanceof Error ? error.message.slice(0, 500) : 'unknown';
  console.warn(JSON.stringify({ level: 'warn', event: 'mcp_calls_unreachable', detail }));
}
