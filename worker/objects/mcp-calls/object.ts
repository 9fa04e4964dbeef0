/**
 * The calls in flight of one MCP session. Before 2026-07-28 a cancellation is a request of its own, which may reach
 * another isolate than the call did: this is where the two meet. A pending `untilCancelled` keeps the object in
 * memory, so there is nothing to store; what a restart loses is only the chance to cancel.
 */
import { DurableObject } from 'cloudflare:workers';
import type { Env } from '../../env.ts';
import type { McpCall, McpCallsPort } from './port.ts';

/** A call beyond these runs like any other, but cannot be cancelled. */
const MAX_CALLS = 1_024;

interface Entry {
  requestId: string;
  end: (isCancelled: boolean) => void;
}

export class McpCallsObject extends DurableObject<Env> implements McpCallsPort {
  readonly #calls = new Map<string, Entry>();

  async untilCancelled({ requestId, token }: McpCall): Promise<boolean> {
    if (this.#calls.size >= MAX_CALLS || this.#calls.has(token)) return false;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#calls.set(token, { requestId, end: resolve });
    return promise;
  }

  async release(token: string): Promise<void> {
    this.#end(token, false);
  }

  async cancel(requestId: string): Promise<void> {
    const tokens = [...this.#calls]
      .filter(([, entry]) => entry.requestId === requestId)
      .map(([token]) => token);
    // Clients without an MCP session share an object: whose call is meant cannot be known then.
    if (tokens.length !== 1) return;
    for (const token of tokens) this.#end(token, true);
  }

  #end(token: string, isCancelled: boolean): void {
    this.#calls.get(token)?.end(isCancelled);
    this.#calls.delete(token);
  }
}
