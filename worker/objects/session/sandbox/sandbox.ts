/** The session's sandbox: attached at the start, again after it was lost, destroyed at the end. */
import { sha256Hex } from '../../../../shared/digest.ts';
import { utf8 } from '../../../../shared/encoding.ts';
import { type ErrorCode, type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { SessionLinkUp } from '../../../../shared/frames.ts';
import type { AttachPayload } from '../../../../shared/grant.ts';
import { ATTACH_TIMEOUT_MS } from '../../../../shared/limits.ts';
import type { RescuePayload, RestorePayload } from '../../../../shared/snapshot.ts';
import type { Configuration } from '../../../configuration.ts';
import type { Env } from '../../../env.ts';
import { snapshotKey } from '../../../snapshots/snapshot-keys.ts';
import { signTransferToken } from '../../../snapshots/transfer-token.ts';
import { commandFrames } from '../../command-frames.ts';
import type { ControlCommand } from '../../host/port.ts';
import { logInfo, logWarning, messageOf } from '../../log.ts';
import { attachTimeoutMs } from '../alarm/agenda.ts';
import { type IssuedGrant, issueGrant } from '../executions/grants.ts';
import type { SessionLink } from '../link/link.ts';
import type { GrantReference, SessionFacts } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import { openNetwork } from './stored-network.ts';

/** How long an attach waits for a host whose control link is down: it dials again within two seconds, and then links. */
const REDIAL_MS = 3_000;
const REDIAL_LOOK_MS = 250;
/** A sandbox is made in a second or two: after this long the command may not have arrived. */
const ATTACH_AGAIN_MS = 6_000;
/** Well within the life of its grant: one that has expired would be refused. */
const ATTACHES_AGAIN = 4;

type Ready = Extract<SessionLinkUp, { type: 'ready' }>;
export type LostReason = Extract<SessionLinkUp, { type: 'sandbox_lost' }>['reason'];

export class SandboxKeeper {
  readonly #row: SessionRow;
  readonly #env: Env;
  readonly #configuration: Configuration;
  readonly #link: () => SessionLink;
  #attaching: { promise: Promise<Outcome<null>>; settle: (outcome: Outcome<null>) => void } | undefined;
  #gone: (() => void) | undefined;
  #attachGrant: GrantReference | undefined;

  constructor(parts: { row: SessionRow; env: Env; configuration: Configuration; link: () => SessionLink }) {
    this.#row = parts.row;
    this.#env = parts.env;
    this.#configuration = parts.configuration;
    this.#link = parts.link;
  }

  /** The attach under way, if this object knows of one. */
  get attaching(): Promise<Outcome<null>> | undefined {
    return this.#attaching?.promise;
  }

  /** The grant that the last sandbox was made by, if this object sent it. */
  get attachGrant(): GrantReference | undefined {
    return this.#attachGrant;
  }

  /** Has the host make a sandbox for the present epoch. Resolves when it is ready, or never will be. */
  attach(): Promise<Outcome<null>> {
    if (this.#attaching !== undefined) return this.#attaching.promise;
    const { promise, resolve } = Promise.withResolvers<Outcome<null>>();
    const timer = setTimeout(
      () => this.#settle(failure('host_unresponsive', 'the host made no sandbox in time')),
      attachTimeoutMs(this.#row.record),
    );
    const settle = (outcome: Outcome<null>) => {
      clearTimeout(timer);
      resolve(outcome);
    };
    this.#attaching = { promise, settle };
    this.#sendAttach().then(
      (sent) => {
        if (!sent.ok) this.#settle(sent);
      },
      () => this.#settle(failure('host_unresponsive', 'the host object did not take the command')),
    );
    return promise;
  }

  /** A new sandbox in place of a lost one, on the same host. What the session held is gone with the old one. */
  replace(): Promise<Outcome<null>> {
    if (this.#attaching !== undefined) return this.#attaching.promise;
    const { epoch } = this.#row.record;
    this.#row.patch({
      epoch: epoch + 1,
      sandbox: 'attaching',
      attachAtMs: Date.now(),
      stateLost: true,
      shell: null,
      linkDownAtMs: null,
      streamId: null,
      lastSeq: 0,
    });
    this.#link().fence();
    return this.attach();
  }

  async #sendAttach(): Promise<Outcome<null>> {
    const { facts, chainSeq, chainSha256 } = this.#row.record;
    const content: AttachPayload = {
      session_id: facts.sessionId,
      environment: facts.environment,
      network: await openNetwork(this.#configuration.secretsKey, facts, facts.network),
      chain: { seq: chainSeq, sha256: chainSha256 },
      ...(await this.#origin()),
    };
    const payload = utf8(JSON.stringify(content));
    const { seq, token: grant, jti, sha256 } = await this.#grant('attach', payload);
    this.#attachGrant = { jti, sha256, seq };
    const { tenant, sessionId } = facts;
    const command = { tenant, sessionId, grant, payload };
    const untilMs = Date.now() + REDIAL_MS;
    let sent = await this.#host().attach(command);
    while (!sent.ok && sent.code === 'no_host_available' && this.#mayWait(untilMs)) {
      await new Promise((resolve) => setTimeout(resolve, REDIAL_LOOK_MS));
      sent = await this.#host().attach(command);
    }
    if (sent.ok) this.#sendAgain(command);
    return sent;
  }

  async #origin(): Promise<{ snapshot: RestorePayload | null; workspace?: RescuePayload }> {
    const { facts, epoch, snapshot } = this.#row.record;
    if (snapshot === null) return { snapshot };
    const { tenant, sessionId, hostId } = facts;
    const { snapshotId, manifestSha256, generation, isOwn, isStopped, forks } = snapshot;
    const claims = { host: hostId, tenant, session: sessionId, snapshot: snapshotId, epoch };
    const stored = {
      snapshot_id: snapshotId,
      manifest_sha256: manifestSha256,
      key: await snapshotKey(this.#configuration.snapshotRoot, { tenant, snapshotId }),
      transfer_token: await signTransferToken({ ...claims, direction: 'get' }, this.#configuration),
    };
    if (snapshot.rescue !== null) return { snapshot: null, workspace: stored };
    return {
      snapshot: {
        ...stored,
        generation: generation + 1,
        executions: isOwn && !isStopped ? 'continue' : 'stop',
        ...(forks.length === 0 ? {} : { forks }),
      },
    };
  }

  /** A control link may be lost with the command on it. The host makes one sandbox for a grant, however often it comes. */
  #sendAgain(command: ControlCommand, times = ATTACHES_AGAIN): void {
    const attaching = this.#attaching;
    if (times === 0) return;
    const timer = setTimeout(() => {
      if (attaching === undefined || this.#attaching !== attaching) return;
      this.#host()
        .attach(command)
        .catch((error: unknown) => logWarning('attach_not_sent_again', { detail: messageOf(error) }));
      this.#sendAgain(command, times - 1);
    }, ATTACH_AGAIN_MS);
    void attaching?.promise.then(() => clearTimeout(timer));
  }

  /** A host that was chosen was there a moment ago: after a restart of this edge it dials again at once. */
  #mayWait(untilMs: number): boolean {
    return Date.now() < untilMs && this.#attaching !== undefined && this.#row.isLive;
  }

  async #grant(act: 'attach' | 'destroy', payload: Uint8Array): Promise<IssuedGrant & { seq: number }> {
    const { facts, epoch } = this.#row.record;
    const bound = { ...facts, imageDigest: this.#imageDigest };
    const seq = this.#row.takeGrantSeq();
    this.#row.patch({ grantSeq: seq });
    const request = {
      act,
      epoch,
      seq,
      payload: { sha256: await sha256Hex(payload) },
      timeoutMs: ATTACH_TIMEOUT_MS,
    };
    return { ...(await issueGrant(bound, request, this.#configuration)), seq };
  }

  /** Of the sandbox that is made: that of its snapshot, or of its rescue. */
  get #imageDigest(): string {
    const { facts, snapshot } = this.#row.record;
    if (snapshot === null) return facts.imageDigest;
    const { rescue, requirements } = snapshot;
    return rescue === null ? requirements.image : (rescue.imageDigest ?? facts.imageDigest);
  }

  ready(frame: Ready): void {
    const { sandbox, snapshot, state } = this.#row.record;
    if (sandbox !== 'attaching' || !this.#row.isLive) return;
    if (frame.snapshot_id !== snapshot?.snapshotId) {
      this.#settle(failure('restore_failed', 'the host made the sandbox of something else'));
      return;
    }
    if (frame.image !== this.#imageDigest) {
      this.#settle(failure('image_refused', 'the host made a sandbox of another image'));
      return;
    }
    const patch = { sandbox: 'ready', sandboxId: frame.sandbox_id, attachAtMs: null } as const;
    if (state === 'creating' || state === 'suspended') this.#row.move('running', patch);
    else this.#row.patch(patch);
    this.#settle(success(null));
  }

  refused(notice: { hostId: string; epoch: number; code: ErrorCode; detail: string }): void {
    const { facts, epoch, sandbox } = this.#row.record;
    if (notice.hostId !== facts.hostId || notice.epoch !== epoch || sandbox !== 'attaching') return;
    this.#settle(failure(notice.code, notice.detail));
  }

  /** After a restart of this object nobody waits for an attach any more: its end is found by the alarm. */
  isOverdue(nowMs: number): boolean {
    const { sandbox, attachAtMs } = this.#row.record;
    return sandbox === 'attaching' && this.#attaching === undefined && nowMs >= this.overdueAtMs(attachAtMs);
  }

  overdueAtMs(attachAtMs: number | null): number {
    return (attachAtMs ?? 0) + attachTimeoutMs(this.#row.record);
  }

  markLost(reason: string): void {
    const { sandbox, facts } = this.#row.record;
    if (sandbox === 'lost' || sandbox === 'destroyed') return;
    logInfo('sandbox_lost', { session_id: facts.sessionId, reason });
    this.#row.patch({ sandbox: 'lost', sandboxId: null, linkDownAtMs: null });
  }

  /** Gives a sandbox up that may live: its host ends it, and whatever it still says is of a former epoch. */
  abandon(reason: string): void {
    this.markLost(reason);
    this.#row.patch({ epoch: this.#row.record.epoch + 1, streamId: null, lastSeq: 0 });
    this.#link().fence();
  }

  /** The sandbox of a session that ends is known to be gone. */
  markDestroyed(): void {
    if (this.#row.record.sandbox === 'destroyed') return;
    const facts = withoutSecrets(this.#row.record.facts);
    this.#row.patch({ sandbox: 'destroyed', sandboxId: null, destroyAtMs: null, facts });
    this.#gone?.();
  }

  /** Tells the host to end the sandbox; whether it did is heard later. */
  async sendDestroy(): Promise<void> {
    const payload = new Uint8Array(0);
    // The session may be on its way to another host when there is a grant.
    const host = this.#host();
    const { token: grant } = await this.#grant('destroy', payload);
    // A host links before it has the sandbox, and may come to have none: then there is nobody on its link to carry this out.
    const isThere = this.#row.record.sandbox === 'ready';
    if (isThere && this.#link().send(commandFrames(grant, payload))) return;
    const { tenant, sessionId } = this.#row.record.facts;
    const sent = await host.destroy({ tenant, sessionId, grant, payload });
    if (!sent.ok) logWarning('destroy_not_sent', { session_id: sessionId, code: sent.code });
  }

  /**
   * The host holds no sandbox of the session, and will not see it again: what it keeps of it may go at once. Never rejects: what
   * it does not hear of goes by itself.
   */
  async letGoAtHost(): Promise<void> {
    const payload = new Uint8Array(0);
    const host = this.#host();
    try {
      const { token: grant } = await this.#grant('destroy', payload);
      const { tenant, sessionId } = this.#row.record.facts;
      await host.destroy({ tenant, sessionId, grant, payload });
    } catch (error: unknown) {
      logWarning('host_not_told', { detail: messageOf(error) });
    }
  }

  /** Resolves when the host confirmed the end of the sandbox, or after `timeoutMs`. */
  async gone(timeoutMs: number): Promise<boolean> {
    if (this.isGone) return true;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#gone = resolve;
    const timer = setTimeout(resolve, timeoutMs);
    await promise;
    clearTimeout(timer);
    this.#gone = undefined;
    return this.isGone;
  }

  get isGone(): boolean {
    return this.#row.record.sandbox === 'destroyed';
  }

  /**
   * After a sandbox was abandoned. A link that is down did not say so, and one that is being made has none yet: the host is
   * told by its control link as well. Where it does not hear that either, its sandbox stands until its own link is fenced.
   */
  async leaveHost(): Promise<void> {
    // Both begin now: a call that comes meanwhile brings the session to its next host, which is not to forget it.
    const leaving = [this.sendDestroy(), this.forgetAtHost()];
    const [destroyed, forgotten] = await Promise.allSettled(leaving);
    if (destroyed?.status === 'rejected')
      logWarning('destroy_not_sent', { detail: messageOf(destroyed.reason) });
    if (forgotten?.status === 'rejected') throw forgotten.reason;
  }

  async forgetAtHost(): Promise<void> {
    const { tenant, sessionId } = this.#row.record.facts;
    await this.#host().forget({ tenant, sessionId });
  }

  /** Ends the attach under way with this outcome. */
  #settle(outcome: Outcome<null>): void {
    const attaching = this.#attaching;
    this.#attaching = undefined;
    attaching?.settle(outcome);
  }

  /** What this host signs is not taken: its object counts how often, whatever session it was. */
  tellReceiptRefused(): void {
    this.#host()
      .receiptRefused()
      .catch((error: unknown) => logWarning('receipt_refusal_not_told', { detail: messageOf(error) }));
  }

  cancelAttach(why: Failure): void {
    this.#settle(why);
  }

  #host() {
    return this.#env.HOST.getByName(this.#row.record.facts.hostId);
  }

  async isHostConnected(): Promise<boolean> {
    return (await this.#host().status()).connected;
  }
}

/** Nothing asks for them again. */
function withoutSecrets(facts: SessionFacts): SessionFacts {
  return facts.network === null ? facts : { ...facts, network: { ...facts.network, secrets: null } };
}
