/**
 * The calls in flight of one MCP session. Before 2026-07-28 a cancellation is a request of its own, which may reach
 * another isolate than the call did: this is where the two meet. A pending `untilCancelled` keeps the object in
 * memory, so calls are not stored; what a restart loses is only the chance to cancel. What was cancelled is: a cancelled
 * request has no answer, also for who comes back for it.
 */
import { DurableObject } from 'cloudflare:workers';
import type { Env } from '../../env.ts';
import { MCP_RESUMABLE_MS, type McpCall, type McpCallsPort } from './port.ts';

/** A call beyond these runs like any other, but cannot be cancelled. */
const MAX_CALLS = 1_024;
const CANCELLED = 'cancelled:';

interface Entry {
  requestId: string;
  callId: string;
  end: (isCancelled: boolean) => void;
}

export class McpCallsObject extends DurableObject<Env> implements McpCallsPort {
  readonly #calls = new Map<string, Entry>();

  async untilCancelled({ requestId, token, callId }: McpCall): Promise<boolean> {
    if (this.#calls.size >= MAX_CALLS || this.#calls.has(token)) return false;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#calls.set(token, { requestId, callId, end: resolve });
    return promise;
  }

  async release(token: string): Promise<void> {
    this.#end(token, false);
  }

  async cancel(requestId: string): Promise<void> {
    const meant = [...this.#calls].filter(([, entry]) => entry.requestId === requestId);
    const [callId, ...others] = new Set(meant.map(([, entry]) => entry.callId));
    // Clients without an MCP session share an object: whose call is meant cannot be known then.
    if (callId === undefined || others.length > 0) return;
    const { storage } = this.ctx;
    const untilMs = Date.now() + MCP_RESUMABLE_MS;
    // Before anybody hears of it: who sees the call end then finds why.
    await storage.put(`${CANCELLED}${callId}`, untilMs);
    if ((await storage.getAlarm()) === null) await storage.setAlarm(untilMs);
    for (const [token] of meant) this.#end(token, true);
  }

  async wasCancelled(callId: string): Promise<boolean> {
    return (await this.ctx.storage.get(`${CANCELLED}${callId}`)) !== undefined;
  }

  /** Nobody can come back for these any more. */
  override async alarm(): Promise<void> {
    const { storage } = this.ctx;
    const nowMs = Date.now();
    const marks = [...(await storage.list({ prefix: CANCELLED }))];
    const over = marks.filter(([, untilMs]) => Number(untilMs) <= nowMs).map(([key]) => key);
    for (const key of over) await storage.delete(key);
    if (over.length < marks.length) await storage.setAlarm(nowMs + MCP_RESUMABLE_MS);
  }

  #end(token: string, isCancelled: boolean): void {
    this.#calls.get(token)?.end(isCancelled);
    this.#calls.delete(token);
  }
}
