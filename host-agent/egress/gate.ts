/** Every way out of one sandbox goes through here: judged by the session's rules, resolved, checked, connected, logged. */
import type { Socket } from 'node:net';
import type { EgressTarget } from '../../shared/network.ts';
import type { Log } from '../logging/log.ts';
import { type Denial, type DenialReason, denial } from './denial.ts';
import { dial } from './dial.ts';
import type { HostBudget } from './host-budget.ts';
import { Meter } from './meter.ts';
import { decide, type EgressPolicy } from './policy.ts';
import { dnsLookup, resolveTarget } from './resolve.ts';
import type { EgressSettings } from './settings.ts';

/** Bound on what connections one after the other can cost this host; an agent's own pace is far below. */
const RATE_BURST = 200;
const RATE_PER_SECOND = 50;
/** As many as the guest can have connections; requests sent one behind the other on one of them count too. */
const MAX_UPSTREAMS = 64;

export interface EgressGateOptions {
  readonly sessionId: string;
  readonly policy: EgressPolicy;
  readonly settings: EgressSettings;
  readonly budget: HostBudget;
  readonly log: Log;
  /** Until it settles whoever is let through waits here. */
  readonly shutUntil?: Promise<void> | undefined;
}

export type Opened =
  | { readonly ok: true; readonly socket: Socket }
  | { readonly ok: false; readonly denial: Denial };

export class EgressGate {
  readonly #options: EgressGateOptions;
  readonly #meter: Meter;
  readonly #stopping = new AbortController();
  #tokens = RATE_BURST;
  #tokensAtMs = performance.now();
  /** Decisions under way and connections that live. */
  #opening = 0;
  #unlogged = 0;
  #shut: Promise<void> | undefined;

  constructor(options: EgressGateOptions) {
    this.#options = options;
    this.#meter = new Meter(options.settings.maxBytes);
    const { shutUntil } = options;
    if (shutUntil === undefined) return;
    const stopped = new Promise((resolve) => {
      this.#stopping.signal.addEventListener('abort', resolve, { once: true });
    });
    this.#shut = Promise.race([shutUntil, stopped]).then(() => {
      this.#shut = undefined;
    });
  }

  /** A connection to the target, or why there is none. */
  async open(target: EgressTarget): Promise<Opened> {
    const limit = this.#limit();
    if (limit !== undefined) return this.#denied(limit, target);
    const { budget } = this.#options;
    if (!budget.take()) return this.#denied(denial('host_connections'), target);
    this.#opening += 1;
    const opened = await this.#open(target).catch((): Opened => {
      return { ok: false, denial: denial('unreachable', target) };
    });
    this.#opening -= 1;
    if (opened.ok) opened.socket.once('close', () => budget.giveBack());
    else budget.giveBack();
    return opened;
  }

  /** What was opened is ended for what its client says on it. */
  cut(reason: 'server_name', target: EgressTarget): void {
    this.#options.log.info({ event: 'egress', ...this.#about(target), status: 'denied', reason });
  }

  /** Both ways, since it was opened. */
  get bytes(): number {
    const { sent, received } = this.#meter.total;
    return sent + received;
  }

  stop(): void {
    this.#stopping.abort();
    this.#meter.cut();
    const { sent, received } = this.#meter.total;
    const { log, sessionId } = this.#options;
    log.info({ event: 'egress_closed', session_id: sessionId, bytes_sent: sent, bytes_received: received });
  }

  async #open(target: EgressTarget): Promise<Opened> {
    const { policy, settings } = this.#options;
    const decision = decide(policy, target);
    if (!decision.allowed) return this.#denied(denial(decision.reason, target), target);
    await this.#shut;
    if (this.#stopping.signal.aborted) return this.#denied(denial('connect_timeout', target), target);
    const resolved = await resolveTarget(target, {
      hosts: settings.hosts,
      lookup: settings.lookup ?? dnsLookup,
    });
    if (!resolved.ok) {
      const refusal = resolved.reason === 'address' ? resolved.refusal : undefined;
      return this.#denied(denial(resolved.reason, target, refusal), target, refusal);
    }
    const dialled = await dial(resolved.addresses, target.port, this.#stopping.signal);
    if (!dialled.ok) return this.#denied(denial(dialled.reason, target), target);
    if (this.#stopping.signal.aborted) {
      dialled.socket.destroy();
      return this.#denied(denial('connect_timeout', target), target);
    }
    this.#allowed(dialled.socket, target, decision.rule);
    return { ok: true, socket: dialled.socket };
  }

  #limit(): Denial | undefined {
    const nowMs = performance.now();
    const refilled = this.#tokens + ((nowMs - this.#tokensAtMs) / 1000) * RATE_PER_SECOND;
    this.#tokens = Math.min(RATE_BURST, refilled);
    this.#tokensAtMs = nowMs;
    if (this.#tokens < 1) return denial('rate');
    this.#tokens -= 1;
    if (this.#opening + this.#meter.connections >= MAX_UPSTREAMS) return denial('connections');
    return this.#meter.isExhausted ? denial('bytes') : undefined;
  }

  #allowed(socket: Socket, target: EgressTarget, rule: string): void {
    const { log } = this.#options;
    const about = this.#about(target);
    log.info({ event: 'egress', ...about, status: 'allowed', rule });
    const startedAt = performance.now();
    this.#meter.track(socket, ({ sent, received }) => {
      const duration = Math.round(performance.now() - startedAt);
      log.info({
        event: 'egress_ended',
        ...about,
        bytes_sent: sent,
        bytes_received: received,
        duration_ms: duration,
      });
    });
  }

  #denied(denied: Denial, target: EgressTarget, detail?: string): Opened {
    this.#logDenied(denied.reason, target, detail);
    return { ok: false, denial: denied };
  }

  /** A guest must not be able to fill the log: what its rate refuses is one line, when the rate lets one through again. */
  #logDenied(reason: DenialReason, target: EgressTarget, detail: string | undefined): void {
    if (reason === 'rate') {
      this.#unlogged += 1;
      if (this.#unlogged > 1) return;
    } else if (this.#unlogged > 1) {
      const { log, sessionId } = this.#options;
      log.warn({ event: 'egress_rate', session_id: sessionId, count: this.#unlogged });
      this.#unlogged = 0;
    }
    this.#options.log.info({
      event: 'egress',
      ...this.#about(target),
      status: 'denied',
      reason,
      ...(detail === undefined ? {} : { detail }),
    });
  }

  #about({ host, port }: EgressTarget) {
    return { session_id: this.#options.sessionId, host, port };
  }
}
