/** Cancellation by `notifications/cancelled`, which is a request of its own. */
import { sha256Hex } from '../../shared/digest.ts';
import { randomHandle } from '../../shared/ids.ts';
import type { Env } from '../env.ts';
import type { Caller } from '../objects/caller.ts';

export type RequestId = string | number;

export interface CancellableCall {
  /** Names the call among those of its client, also when somebody comes back for its answer. */
  callId: string;
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

  /** `callId`: of a call that was entered before, and is attended once more. */
  enter(requestId: RequestId, callId = randomHandle()): CancellableCall {
    const controller = new AbortController();
    const token = randomHandle();
    // One stub for both calls: they arrive in their order.
    const stub = this.#env.MCP_CALLS.getByName(this.#name);
    const waiting = stub.untilCancelled({ requestId: JSON.stringify(requestId), token, callId }).then(
      (isCancelled) => {
        if (isCancelled) controller.abort();
      },
      // Without the object the call runs on, and only cannot be cancelled.
      (error: unknown) => logUnreachable(error),
    );
    return {
      callId,
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

  /** Of a call of the last day: whether its client took it back. */
  async wasCancelled(callId: string): Promise<boolean> {
    const asked = this.#env.MCP_CALLS.getByName(this.#name).wasCancelled(callId);
    return asked.catch((error: unknown) => {
      logUnreachable(error);
      return false;
    });
  }
}

function logUnreachable(error: unknown): void {
  const detail = error instanceof Error ? error.message.slice(0, 500) : 'unknown';
  console.warn(JSON.stringify({ level: 'warn', event: 'mcp_calls_unreachable', detail }));
}
