/** After a restart: tells the edge how executions of a former sandbox ended, and that the sandbox is gone. */

import { DEFAULT_RESOURCE_LIMITS } from '../../shared/limits.ts';
import { seal, unknownEnd } from '../execution/run.ts';
import { HostedSession } from '../execution/session.ts';
import type { SessionState } from '../journal/state.ts';
import type { AttachmentDependencies } from './attachment.ts';
import type { HeldSession, SessionEnd } from './held-session.ts';
import { CLOSE_GOING_AWAY, CLOSE_NORMAL } from './link-socket.ts';
import { SessionLink } from './session-link.ts';
import { tellUntoldEnds } from './untold-ends.ts';

const RESTARTED = 'host_restarted';

export class Delivery implements HeldSession {
  readonly holdsSandbox = false;
  readonly image = undefined;
  readonly epoch: number;
  readonly gone: Promise<SessionEnd>;
  readonly #state: SessionState;
  readonly #dependencies: AttachmentDependencies;
  readonly #link: SessionLink;
  readonly #untold = new Set<string>();
  #resolveCut: (end: SessionEnd) => void = () => {};

  /** First every end is in the journal, then the edge is dialled. */
  static async prepare(state: SessionState, dependencies: AttachmentDependencies): Promise<Delivery> {
    for (const { started, finished } of state.executions.values()) {
      if (finished !== null) continue;
      const chain = dependencies.journal.session(state.sessionId)?.chain ?? state.chain;
      await seal({ ...dependencies, chain }, started, unknownEnd(started, RESTARTED), []);
      dependencies.log.warn({
        event: 'execution_unknown',
        session_id: state.sessionId,
        execution_id: started.execution_id,
      });
    }
    return new Delivery(state, dependencies);
  }

  private constructor(state: SessionState, dependencies: AttachmentDependencies) {
    this.#state = state;
    this.#dependencies = dependencies;
    this.epoch = state.epoch;
    const { links, log, timing } = dependencies;
    const { sessionId, tenant, epoch, image } = state;
    this.#link = new SessionLink({
      sessionId,
      epoch,
      ...links.session(state),
      onCommand: (command) => session.handleCommand(command),
      onTransfer: () => true,
      onDown: () => {},
      onFenced: () => this.#resolveCut('fenced'),
      log,
      timing,
    });
    const binding = { sessionId, tenant, epoch, image, limits: DEFAULT_RESOURCE_LIMITS };
    const session = new HostedSession(binding, null, this.#link, dependencies, { untold: this.#untold });
    this.gone = this.#deliver();
    this.#link.connect();
  }

  /** Only news: nothing of it runs. */
  setLease(): void {}

  async destroy(): Promise<void> {
    await this.fence();
  }

  async fence(): Promise<void> {
    this.#resolveCut('fenced');
    await this.gone;
  }

  async stop(): Promise<void> {
    this.#resolveCut('stopped');
    await this.gone;
  }

  async #deliver(): Promise<SessionEnd> {
    const { journal, log } = this.#dependencies;
    const { sessionId, epoch } = this.#state;
    const cut = new Promise<SessionEnd>((resolve) => {
      this.#resolveCut = resolve;
    });
    const end = await Promise.race([cut, this.#tellAll()]);
    this.#link.close(end === 'stopped' ? CLOSE_GOING_AWAY : CLOSE_NORMAL);
    this.#link.abandon();
    if (end !== 'stopped') journal.detached(sessionId, epoch, true);
    log.info({ event: 'session_delivered', session_id: sessionId, epoch, reason: end });
    return end;
  }

  async #tellAll(): Promise<SessionEnd> {
    const { journal } = this.#dependencies;
    await tellUntoldEnds(this.#state, { journal, uplink: this.#link, untold: this.#untold });
    await this.#link.whenAcknowledged(this.#link.send({ type: 'sandbox_lost', reason: RESTARTED }));
    return 'told';
  }
}
