/**
 * Calls of the gateway that nobody waits for: made by their session's object, which lives as long as they run. One that it
 * does not outlive is `unknown` at its deadline, and is not made again.
 */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Execution } from '../../../../shared/execution.ts';
import type { Configuration } from '../../../configuration.ts';
import type { Env } from '../../../env.ts';
import { outcomeOf } from '../../../middleware/refusal.ts';
import { type ResolvedCall, resolveCall } from '../../../tools/resolve-call.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { DetachedEdgeCall } from './detached-call.ts';
import type { EdgeCall } from './edge-call.ts';

/** Each holds a connection of the object. */
const MAX_UNDER_WAY = 16;

export interface DetachedPort {
  /** Null where the call may be made; otherwise the first with its key, as it stands. */
  begin(call: EdgeCall): Outcome<Execution | null>;
  progressed(
    executionId: string,
    progress: { progress: number; total: number | null; message: string | null },
  ): void;
  end(execution: Execution): Promise<unknown>;
}

export class DetachedCalls {
  readonly #env: Env;
  readonly #configuration: Configuration;
  readonly #port: DetachedPort;
  readonly #underWay = new Map<string, AbortController>();

  constructor({ env, configuration }: { env: Env; configuration: Configuration }, port: DetachedPort) {
    this.#env = env;
    this.#configuration = configuration;
    this.#port = port;
  }

  /** The call as it stands once it is written down, and so is made. */
  async make(call: DetachedEdgeCall): Promise<Outcome<Execution>> {
    const { owner, executionId, sessionId, idempotency, callback } = call;
    const resolved = await this.#resolve(call);
    if (!resolved.ok) return resolved;
    const { performance, finish } = resolved.value;
    if (performance === undefined) {
      return failure('tool_unavailable', `${call.asked.tool_name} does not run at the gateway any more`);
    }
    const ids = { sessionId, executionId };
    const about = await performance.begun(ids);
    if (this.#underWay.size >= MAX_UNDER_WAY) {
      return failure(
        'queue_full',
        `${MAX_UNDER_WAY} detached calls of the gateway are under way in this session`,
        {
          retry_after_s: 1,
        },
      );
    }
    const begun = this.#port.begin({ ...about, idempotency, callback, timeoutMs: performance.timeoutMs });
    if (!begun.ok) return begun;
    if (begun.value !== null) return success(begun.value);
    const controller = new AbortController();
    this.#underWay.set(executionId, controller);
    performance
      .run(ids, controller.signal, (progress) => this.#port.progressed(executionId, progress))
      .then((execution) => this.#port.end(finish(execution)))
      .catch((error: unknown) => {
        logWarning('detached_call_failed', {
          session_id: sessionId,
          tenant: owner.tenant,
          detail: messageOf(error),
        });
      })
      .finally(() => this.#underWay.delete(executionId));
    return success(about.execution);
  }

  /** Every check of the request again, by what holds now: what is made is what was checked here. */
  async #resolve({
    owner,
    asked,
    receivedMs,
  }: DetachedEdgeCall): Promise<Outcome<ResolvedCall<DetachedEdgeCall['asked']>>> {
    const { scopes, boundTo = null, ...facts } = owner;
    const principal = { kind: 'tenant', ...facts, boundTo, scopes: new Set(scopes) } as const;
    const context = { env: this.#env, configuration: this.#configuration, principal, receivedMs };
    return outcomeOf(async () => success(await resolveCall(context, asked)));
  }

  get isMaking(): boolean {
    return this.#underWay.size > 0;
  }

  /** Breaks it off; false where it is not under way. */
  stop(executionId: string): boolean {
    const controller = this.#underWay.get(executionId);
    controller?.abort();
    return controller !== undefined;
  }

  stopAll(): void {
    for (const controller of this.#underWay.values()) controller.abort();
  }
}
