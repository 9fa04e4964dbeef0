/** The sessions of this host: makes a sandbox for an `attach` grant, ends it for a `destroy` grant. */
import { hash, randomBytes } from 'node:crypto';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import { type AttachPayload, AttachPayloadSchema, type GrantClaims } from '../../shared/grant.ts';
import { egressClaim } from '../../shared/network.ts';
import { CreateSessionSchema, type ResourceLimits } from '../../shared/session.ts';
import { checkAttach, checkPayload, checkSequence } from '../execution/grant-check.ts';
import type { SessionState } from '../journal/state.ts';
import type { Sandbox, Sandboxes } from '../sandbox/port.ts';
import { Attachment, type AttachmentDependencies, type RestoredSession } from './attachment.ts';
import { Delivery } from './delivery.ts';
import { DialledLink } from './dialled-link.ts';
import type { HeldSession } from './held-session.ts';
import type { LeaseState } from './lease.ts';
import { rescueSession } from './rescue.ts';
import { restoreSession } from './restoration.ts';

export interface AttachmentsOptions extends AttachmentDependencies {
  sandboxes: Sandboxes;
  caps: ResourceLimits;
  /** The number of sandboxes changed. */
  onChange: () => void;
}

export class Attachments {
  readonly #options: AttachmentsOptions;
  readonly #held = new Map<string, HeldSession>();
  /** Sessions whose sandbox is being made. */
  readonly #starting = new Map<string, { jti: string; epoch: number; done: Promise<unknown> }>();
  #isStopped = false;
  #isDraining = false;
  #isDrainedByEdge = false;
  #isToBeEmpty = false;
  #lease: LeaseState = 'held';

  constructor(options: AttachmentsOptions) {
    this.#options = options;
  }

  /** No new sandbox is taken; those that live go on. */
  get isDraining(): boolean {
    return this.#isDraining || this.#isDrainedByEdge;
  }

  set isDraining(isDraining: boolean) {
    this.#isDraining = isDraining;
    this.#options.onChange();
  }

  /** Whether the edge is asked to take its sessions elsewhere: an agent that stops ends them where they are. */
  get isToBeEmpty(): boolean {
    return this.#isToBeEmpty;
  }

  /** As the operator of this machine wants it. */
  drainForMachine(isDraining: boolean): void {
    this.#isToBeEmpty = isDraining;
    this.isDraining = isDraining;
  }

  /** As the operator of the edge wants it, beside what is wanted on this machine. */
  drainForEdge(isDraining: boolean): void {
    if (this.#isDrainedByEdge === isDraining) return;
    this.#isDrainedByEdge = isDraining;
    this.#options.log.info({ event: isDraining ? 'draining' : 'taking_sandboxes', reason: 'edge' });
    this.#options.onChange();
  }

  /** What this host may do at all without a word from the edge. */
  setLease(state: LeaseState): void {
    this.#lease = state;
    this.#options.log.warn({ event: 'lease', reason: state, count: this.count });
    for (const held of this.#held.values()) held.setLease(state);
  }

  /** Digests of the images that sandboxes run on, one for each sandbox. */
  get imagesInUse(): string[] {
    return [...this.#held.values()].flatMap(({ image }) => (image === undefined ? [] : [image]));
  }

  get count(): number {
    const withSandbox = [...this.#held.values()].filter(({ holdsSandbox }) => holdsSandbox);
    return withSandbox.length + this.#starting.size;
  }

  /** Undefined where the sandbox lives and its link is dialled, or where this grant was carried out before. */
  async attach(claims: GrantClaims, payload: Uint8Array, grantSha256: string): Promise<Failure | undefined> {
    const { journal, sandboxes, caps } = this.#options;
    if (this.#isStopped) return failure('host_full', 'the host is stopping');
    const hashed = checkPayload(claims, hash('sha256', payload));
    if (!hashed.ok) return hashed;
    const attach = attachPayload(claims, payload);
    if (attach === undefined) return failure('invalid_request', 'not the payload of an attach grant');
    if (claims.egress !== (await egressClaim(attach.network))) {
      return failure('egress_refused', 'egress is not the digest of the network that is granted');
    }
    const known = journal.session(claims.sid);
    if (known !== undefined && known.tenant !== claims.tenant) {
      return failure('wrong_session', 'the session is of another tenant');
    }
    const beingMade = this.#starting.get(claims.sid);
    if (beingMade?.jti === claims.jti) return undefined;
    if (known?.attachJti === claims.jti) {
      if (this.#held.get(claims.sid)?.epoch === claims.epoch) return undefined;
      return failure('grant_replayed', 'the sandbox of this grant is gone');
    }
    const highestEpoch = Math.max(known?.epoch ?? 0, beingMade?.epoch ?? 0);
    const { images } = sandboxes.facts;
    const refused = checkAttach(claims, { images, caps, highestEpoch });
    if (refused !== undefined) return refused;
    const sequence = checkSequence(claims, known?.seq ?? 0);
    if (!sequence.ok) return sequence;
    if (this.isDraining) return failure('host_full', 'the host is draining');
    if (this.#lease !== 'held')
      return failure('host_degraded', 'the host has not heard of the edge for long');
    const freed = this.#held.get(claims.sid)?.holdsSandbox === true ? 1 : 0;
    if (this.count - freed >= sandboxes.facts.capacity) {
      return failure('host_full', 'no room for another sandbox');
    }
    this.#options.lateness.observe(claims.iat);
    const starting = { jti: claims.jti, epoch: claims.epoch, done: this.#start(claims, attach, grantSha256) };
    this.#starting.set(claims.sid, starting);
    this.#options.onChange();
    const outcome = await starting.done;
    if (this.#starting.get(claims.sid) === starting) this.#starting.delete(claims.sid);
    this.#options.onChange();
    return outcome;
  }

  /** Settles when nothing of the session is left here, be it that nothing was. */
  async destroy(claims: GrantClaims, payload: Uint8Array): Promise<Failure | undefined> {
    const hashed = checkPayload(claims, hash('sha256', payload));
    if (!hashed.ok) return hashed;
    const known = this.#options.journal.session(claims.sid);
    if (known !== undefined && known.tenant !== claims.tenant) {
      return failure('wrong_session', 'the session is of another tenant');
    }
    const starting = this.#starting.get(claims.sid);
    // One that is being made is in the journal only once its predecessor is fenced.
    const seen = Math.max(known?.epoch ?? 0, starting?.epoch ?? 0);
    if (claims.epoch < seen) return failure('fenced', `epoch is ${claims.epoch}, ${seen} was seen`);
    await starting?.done;
    const held = this.#held.get(claims.sid);
    if (held !== undefined && claims.epoch < held.epoch) {
      return failure('fenced', `epoch is ${claims.epoch}, ${held.epoch} was seen`);
    }
    await held?.destroy();
    await this.#options.snapshots.forgetSession(claims.sid);
    return undefined;
  }

  /**
   * What a former agent on this state left: sandboxes at rest go on; of the others, which are gone, there is to say so, and
   * what it had started ends as `unknown`.
   * Settles when all of that is in the journal; the edge is told from then on.
   */
  async recover(): Promise<void> {
    const { sandboxes, journal, log } = this.#options;
    for (const session of journal.sessions()) {
      if (session.attachment === 'gone') continue;
      const held = mayGoOn(session) ? sandboxes.takeHeld?.(session) : undefined;
      if (held === undefined) {
        this.#hold(session.sessionId, await Delivery.prepare(session, this.#options));
        continue;
      }
      const { sandbox, owner } = held;
      log.info({ event: 'sandbox_held', session_id: session.sessionId, sandbox_id: sandbox.id });
      const former = { ...session, executions: new Map(session.executions) };
      const origin = { dialled: new DialledLink(owner, this.#options), former };
      this.#hold(session.sessionId, new Attachment(owner, sandbox, this.#options, origin));
    }
    await sandboxes.endHeld?.();
  }

  /** Each session stops when what runs in it has ended, or when the patience is over. */
  async stop(patience: Promise<void>, isSucceeded: boolean): Promise<void> {
    this.#isStopped = true;
    await Promise.all([...this.#starting.values()].map(({ done }) => done));
    await Promise.all([...this.#held.values()].map((held) => held.stop(patience, isSucceeded)));
  }

  async #start(
    claims: GrantClaims,
    attach: AttachPayload,
    grantSha256: string,
  ): Promise<Failure | undefined> {
    const { journal, sandboxes } = this.#options;
    await this.#held.get(claims.sid)?.fence();
    const sandboxId = `sbx-${randomBytes(8).toString('hex')}`;
    const journaled = await journal.attached({
      sessionId: claims.sid,
      epoch: claims.epoch,
      tenant: claims.tenant,
      sandboxId,
      image: claims.image,
      jti: claims.jti,
      seq: claims.seq,
      chain: attach.chain,
    });
    if (!journaled.ok) return journaled;
    const { timeout_ms: _, ...limits } = claims.limits;
    const config = {
      sandboxId,
      imageDigest: claims.image,
      limits,
      environment: attach.environment,
      network: attach.network === null ? null : { sessionId: claims.sid, rules: attach.network },
    };
    const { snapshot, workspace } = attach;
    const binding = {
      sessionId: claims.sid,
      tenant: claims.tenant,
      epoch: claims.epoch,
      image: claims.image,
      limits,
      egress: claims.egress,
      ...(snapshot === null ? {} : { generation: snapshot.generation }),
    };
    const dialled = new DialledLink(binding, this.#options);
    dialled.dial();
    const started = await (snapshot !== null
      ? restoreSession(this.#options, config, { claims, grantSha256, snapshot })
      : workspace !== undefined
        ? rescueSession(this.#options, config, workspace)
        : startSafely(sandboxes, config));
    if (!started.ok) {
      dialled.hangUp();
      journal.detached(claims.sid, claims.epoch, true);
      return started;
    }
    const { sandbox } = started.value;
    if (journal.session(claims.sid)?.epoch !== claims.epoch) {
      dialled.hangUp();
      await sandbox.destroy();
      return failure('fenced', 'a higher epoch came meanwhile');
    }
    const origin = { dialled, restored: started.value.session };
    this.#hold(claims.sid, new Attachment(binding, sandbox, this.#options, origin));
    return undefined;
  }

  #hold(sessionId: string, held: HeldSession): void {
    this.#held.set(sessionId, held);
    if (this.#lease !== 'held') held.setLease(this.#lease);
    held.gone
      // What goes wrong with one session is no end of the agent.
      .catch((error: unknown) => {
        const detail = error instanceof Error ? error.message : 'unknown';
        this.#options.log.error({ event: 'session_fault', session_id: sessionId, detail });
      })
      .finally(() => {
        if (this.#held.get(sessionId) === held) this.#held.delete(sessionId);
        this.#options.onChange();
      });
  }
}

/** What was started and has no end was in no sandbox at rest. */
function mayGoOn({ attachment, executions }: SessionState): boolean {
  return attachment === 'attached' && [...executions.values()].every(({ finished }) => finished !== null);
}

async function startSafely(
  sandboxes: Sandboxes,
  config: Parameters<Sandboxes['start']>[0],
): Promise<Outcome<{ sandbox: Sandbox; session?: RestoredSession }>> {
  try {
    const started = await sandboxes.start(config);
    return started.ok ? success({ sandbox: started.value }) : started;
  } catch (error: unknown) {
    return failure('sandbox_failed', error instanceof Error ? error.message : 'the sandbox did not start');
  }
}

function attachPayload(claims: GrantClaims, payload: Uint8Array): AttachPayload | undefined {
  try {
    const json: unknown = JSON.parse(
      new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(payload),
    );
    const parsed = AttachPayloadSchema.safeParse(json);
    if (!parsed.success || parsed.data.session_id !== claims.sid) return undefined;
    // The edge's own bounds of an environment are checked again: its names become those of processes here.
    return CreateSessionSchema.shape.env.safeParse(parsed.data.environment).success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
}
