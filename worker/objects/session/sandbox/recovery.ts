/** Makes sandbox and link usable again while calls wait for them: a lost link is waited for, a lost sandbox replaced. */
import { type ErrorCode, type Failure, failure } from '../../../../shared/errors.ts';
import { HOST_DEAD_MS } from '../../../../shared/limits.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { Relocation } from './relocation.ts';
import type { SandboxKeeper } from './sandbox.ts';

/** A host that lives redials well within this; after it the sandbox is taken for lost. */
const LINK_RETURN_MS = 15_000;
const LOOK_INTERVAL_MS = 500;
/** Refusals that say nothing of another host. */
const OF_ONE_HOST: ReadonlySet<ErrorCode> = new Set(['host_full', 'host_degraded', 'no_host_available']);

export interface RecoveryPort {
  isLinkUp(): boolean;
  hasWork(): boolean;
  /** Sandbox and link are there. */
  usable(): void;
  /** The host made no sandbox: the call at the front of the queue does not run. */
  refuse(why: Failure): void;
  hostLost(): void;
  /** Settles when it is known what the next sandbox is made of. */
  rebuilt(): Promise<void>;
}

export class Recovery {
  readonly #row: SessionRow;
  readonly #sandbox: SandboxKeeper;
  readonly #relocation: Relocation;
  readonly #port: RecoveryPort;
  #running = false;

  constructor(
    parts: { row: SessionRow; sandbox: SandboxKeeper; relocation: Relocation },
    port: RecoveryPort,
  ) {
    this.#row = parts.row;
    this.#sandbox = parts.sandbox;
    this.#relocation = parts.relocation;
    this.#port = port;
  }

  /** Runs until there is a usable sandbox or nothing waits for one. */
  start(): void {
    if (this.#running) return;
    this.#running = true;
    this.#run()
      .catch((error: unknown) => logWarning('recovery_failed', { detail: messageOf(error) }))
      .finally(() => {
        this.#relocation.settled();
        this.#running = false;
      });
  }

  async #run(): Promise<void> {
    const sinceMs = Date.now();
    await this.#port.rebuilt();
    while (this.#row.record.state === 'running' && this.#port.hasWork()) {
      const { sandbox } = this.#row.record;
      if (sandbox === 'ready' && this.#port.isLinkUp()) return this.#port.usable();
      if (sandbox === 'lost' || this.#sandbox.attaching !== undefined) await this.#replace(sinceMs);
      else await this.#waitForLink(sinceMs);
    }
  }

  async #replace(sinceMs: number): Promise<void> {
    if (this.#sandbox.attaching === undefined && !(await this.#sandbox.isHostConnected())) {
      return (await this.#relocation.move()) ? undefined : this.#waitForHost(sinceMs);
    }
    const attached = await this.#sandbox.replace();
    if (attached.ok || this.#row.record.state !== 'running') return;
    this.#sandbox.markLost('link_lost');
    if (OF_ONE_HOST.has(attached.code) && (await this.#relocation.move())) return;
    if (attached.code === 'no_host_available') await this.#waitForHost(sinceMs);
    else this.#port.refuse(attached);
  }

  async #waitForHost(sinceMs: number): Promise<void> {
    if (Date.now() - sinceMs < HOST_DEAD_MS) return pause();
    // A session that is made anew elsewhere does not end because there is no such place now.
    if (this.#row.record.facts.onHostLoss === 'fail') this.#port.hostLost();
    else this.#port.refuse(failure('no_host_available', 'no host has room for the session'));
  }

  /** The link is down though the sandbox was not said to be gone, or its attach is older than this object. */
  async #waitForLink(sinceMs: number): Promise<void> {
    const waitedMs = Date.now() - Math.min(sinceMs, this.#row.record.linkDownAtMs ?? sinceMs);
    if (waitedMs >= LINK_RETURN_MS) {
      if (await this.#sandbox.isHostConnected()) {
        if (!this.#port.isLinkUp()) this.#sandbox.markLost('link_lost');
        return;
      }
      if (waitedMs >= HOST_DEAD_MS) return this.#port.hostLost();
    }
    await pause();
  }
}

function pause(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  setTimeout(resolve, LOOK_INTERVAL_MS);
  return promise;
}
