/** One attached session: its sandbox and its link, from `ready` until the edge knows that the sandbox is gone. */
import type { SessionBinding } from '../execution/grant-check.ts';
import { HostedSession, type SessionDependencies } from '../execution/session.ts';
import type { Uplink } from '../execution/uplink.ts';
import type { SessionState } from '../journal/state.ts';
import type { LostReason, Sandbox } from '../sandbox/port.ts';
import { Transfers } from '../transfers/transfers.ts';
import type { DialledLink, DialledLinkParts } from './dialled-link.ts';
import type { HeldSession, SessionEnd } from './held-session.ts';
import type { LeaseState } from './lease.ts';
import { CLOSE_GOING_AWAY, CLOSE_NORMAL } from './link-socket.ts';
import type { SessionLink } from './session-link.ts';
import { tellUntoldEnds } from './untold-ends.ts';

/** After this the edge has long declared the host dead; what is left here serves nobody. */
const ABANDON_AFTER_MS = 600_000;
/** A destroyed session may be forgotten by the edge before it acknowledges the end of its sandbox. */
const DESTROYED_FAREWELL_MS = 10_000;
/** A stopping agent waits this long for the edge to take in that its sandboxes are gone. */
const STOPPING_FAREWELL_MS = 1_500;

export interface AttachmentDependencies extends SessionDependencies, DialledLinkParts {
  abandonAfterMs?: number;
}

export interface RestoredSession {
  snapshotId: string;
  /** Takes over what ran, once the session has its link. */
  adopt: (session: HostedSession, uplink: Uplink) => void;
  /** Until then the sandbox stands still. */
  goOn: () => void;
}

export interface AttachmentOrigin {
  dialled: DialledLink;
  /** The sandbox goes on from a snapshot. */
  restored?: RestoredSession | undefined;
  /** It was there before this agent, which may not have told all of what ended in it. */
  former?: SessionState;
}

export class Attachment implements HeldSession {
  readonly holdsSandbox = true;
  readonly binding: SessionBinding;
  readonly gone: Promise<SessionEnd>;
  readonly #sandbox: Sandbox;
  readonly #link: SessionLink;
  readonly #session: HostedSession;
  readonly #transfers: Transfers;
  readonly #dependencies: AttachmentDependencies;
  #isCut = false;
  #isEndedByLease = false;
  #goOn: (() => void) | undefined;
  /** Resolves when the edge has taken in that this sandbox is the one of the session. */
  readonly #accepted: Promise<void>;
  /** Resolves when the host has its lease. */
  #leased: Promise<void> = Promise.resolve();
  #resolveCut: (end: SessionEnd) => void = () => {};

  constructor(
    binding: SessionBinding,
    sandbox: Sandbox,
    dependencies: AttachmentDependencies,
    { dialled, restored, former }: AttachmentOrigin,
  ) {
    this.binding = binding;
    this.#sandbox = sandbox;
    this.#dependencies = dependencies;
    this.#link = dialled.link;
    const { sessionId, epoch } = binding;
    const { log } = dependencies;
    this.#transfers = new Transfers({ sessionId, epoch, sandbox, wire: this.#link, log });
    const untold = new Set<string>();
    this.#session = new HostedSession(binding, sandbox, this.#link, dependencies, {
      transfers: this.#transfers,
      untold,
      onMoved: () => this.#cut('told'),
    });
    this.gone = this.#live();
    const readySeq = this.#link.send({
      type: 'ready',
      sandbox_id: sandbox.id,
      image: binding.image,
      runsc_version: dependencies.host.runscVersion.slice(0, 64),
      runsc_platform: dependencies.host.runscPlatform.slice(0, 64),
      ...(restored === undefined ? {} : { snapshot_id: restored.snapshotId }),
    });
    restored?.adopt(this.#session, this.#link);
    const { journal } = dependencies;
    this.#accepted =
      former === undefined
        ? this.#goOnOnceAccepted(readySeq, restored)
        : tellUntoldEnds(former, { journal, uplink: this.#link, untold });
    void this.#accepted.then(() => this.#keep());
    dialled.serve({
      onCommand: async (command) => {
        await this.#accepted;
        await this.#leased;
        await this.#session.handleCommand(command);
      },
      onTransfer: (frame, bytes) => this.#transfers.receive(frame, bytes),
      onDown: () => this.#transfers.linkDown(),
      onFenced: () => this.#cut('fenced'),
    });
    dialled.dial();
  }

  /** An edge that has given this sandbox up may have another one made of the same snapshot: both must never run. */
  async #goOnOnceAccepted(readySeq: number, restored: RestoredSession | undefined): Promise<void> {
    if (restored === undefined) return;
    await this.#link.whenAcknowledged(readySeq);
    if (!this.#isCut) restored.goOn();
  }

  /** What of a network is secret is on no disk: a sandbox that has one does not outlive its agent. */
  #keep(): void {
    if (!this.#isCut && this.binding.egress === 'none') this.#sandbox.keepFor?.(this.binding);
  }

  get epoch(): number {
    return this.binding.epoch;
  }

  get image(): string {
    return this.binding.image;
  }

  /** A command that comes meanwhile waits; should it wait too long, it is refused for its age. */
  setLease(state: LeaseState): void {
    if (state === 'lapsed') {
      this.#standStill();
      return;
    }
    if (state === 'ended') {
      this.#isEndedByLease = true;
      this.#sandbox.destroy().catch((error: unknown) => this.#destroyFailed(error));
    }
    this.#goOn?.();
    this.#goOn = undefined;
  }

  #standStill(): void {
    if (this.#goOn !== undefined) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#leased = promise;
    const goOn = this.#sandbox.standStill?.();
    this.#goOn = () => {
      goOn?.();
      resolve();
    };
  }

  #destroyFailed(error: unknown): void {
    const detail = error instanceof Error ? error.message : 'unknown';
    this.#dependencies.log.error({ event: 'sandbox_destroy_failed', sandbox_id: this.#sandbox.id, detail });
  }

  async destroy(): Promise<void> {
    await this.#sandbox.destroy();
    // Told by whoever asked for it: on a link that is down the farewell would reach nobody.
    if (this.#link.downForMs > 0) this.#cut('told');
    await this.gone;
  }

  async fence(): Promise<void> {
    this.#cut('fenced');
    await this.gone;
  }

  /** What the edge does not take in now, the journal tells it at the next start. */
  async stop(patience: Promise<void>, isSucceeded: boolean): Promise<void> {
    await Promise.race([this.#session.end(), patience]);
    if (isSucceeded) await this.#leave();
    else await this.#endSandbox();
    await this.gone;
  }

  async #endSandbox(): Promise<void> {
    await this.#sandbox.destroy();
    await Promise.race([this.gone, after(STOPPING_FAREWELL_MS)]);
    this.#cut('stopped');
  }

  /** What is wanted of it from now on waits at the edge for our successor, which also tells of one that could not be left. */
  async #leave(): Promise<void> {
    this.#link.close(CLOSE_GOING_AWAY);
    const isAtRest = (await this.#sandbox.comeToRest?.()) ?? false;
    if (!isAtRest) await this.#sandbox.destroy();
    this.#cut(isAtRest ? 'left' : 'stopped');
  }

  #cut(end: SessionEnd): void {
    this.#isCut = true;
    this.#resolveCut(end);
  }

  async #live(): Promise<SessionEnd> {
    const { journal, log } = this.#dependencies;
    const { sessionId, epoch } = this.binding;
    const cut = new Promise<SessionEnd>((resolve) => {
      this.#resolveCut = resolve;
    });
    const abandonAfterMs = this.#dependencies.abandonAfterMs ?? ABANDON_AFTER_MS;
    const watch = setInterval(() => {
      if (this.#link.downForMs > abandonAfterMs) this.#cut('abandoned');
    }, abandonAfterMs / 20).unref();
    const end = await Promise.race([cut, this.#sandbox.lost.then((lost) => this.#tellLost(lost.reason))]);
    clearInterval(watch);
    if (end === 'left') {
      log.info({ event: 'session_left', session_id: sessionId, epoch });
      return end;
    }
    this.#link.close(end === 'stopped' ? CLOSE_GOING_AWAY : CLOSE_NORMAL);
    // First the sandbox: while it lives, a program that nobody reads from has to wait.
    await this.#sandbox.destroy().catch((error: unknown) => this.#destroyFailed(error));
    this.#link.abandon();
    await Promise.all([this.#session.end(), this.#transfers.end()]);
    if (end !== 'stopped') journal.detached(sessionId, epoch, true);
    log.info({ event: 'session_detached', session_id: sessionId, epoch, reason: end });
    return end;
  }

  get #leaseLost(): 'lease_lost' | 'crashed' {
    return this.#link.protocol >= 2 ? 'lease_lost' : 'crashed';
  }

  async #tellLost(lost: LostReason): Promise<SessionEnd> {
    // Once it has ended it stays so for this sandbox, whatever becomes of the lease.
    const reason = this.#isEndedByLease && lost === 'destroyed' ? this.#leaseLost : lost;
    await this.#session.end();
    if (this.#isCut) return 'fenced';
    this.#dependencies.journal.detached(this.binding.sessionId, this.binding.epoch, false);
    const told = this.#link.whenAcknowledged(this.#link.send({ type: 'sandbox_lost', reason }));
    await (reason === 'destroyed' ? Promise.race([told, after(DESTROYED_FAREWELL_MS)]) : told);
    return 'told';
  }
}

function after(delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, delayMs).unref();
  });
}
