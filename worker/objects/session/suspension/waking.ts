/** Brings a suspended session back: a host that fits its snapshot, a sandbox made of it, and a new epoch. */
import { type ErrorCode, type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import { HOST_ANSWER_GRACE_MS } from '../../../../shared/limits.ts';
import type { Env } from '../../../env.ts';
import { logInfo, logWarning, messageOf } from '../../log.ts';
import type { Placement } from '../../pool/port.ts';
import { nextWakeDelayMs, wakeAt } from '../alarm/agenda.ts';
import type { Deadlines } from '../executions/deadlines.ts';
import type { Executions } from '../executions/executions.ts';
import { notNow } from '../lifecycle/pausing.ts';
import type { SessionLink } from '../link/link.ts';
import type { SessionFacts } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { SessionStore } from '../rows/store.ts';
import type { SandboxKeeper } from '../sandbox/sandbox.ts';
import { type HeldSnapshot, mayLiePlain, type Rescue } from './held-snapshot.ts';
import { withRescue } from './rescuable.ts';

const MAX_HOSTS_TRIED = 3;
/** What does not verify will not come to; a storage that was wrong for a moment has been asked often enough then. */
const MAX_TRIES_OF_DAMAGED = 5;
/** Refusals of one host that say nothing of the next. */
const OF_ONE_HOST: ReadonlySet<ErrorCode> = new Set([
  'host_full',
  'host_degraded',
  'no_host_available',
  'host_unresponsive',
  'image_refused',
  'snapshot_mismatch',
  'restore_failed',
  'sandbox_failed',
]);

export interface WakingPort {
  moved(): void;
  /** Among the sessions that the tenant may have at a time; before a host is looked for. */
  takePlace(): Promise<Outcome<null>>;
  giveBackPlace(): void;
  /** Of what was under way in it nothing goes on: its workspace alone is there, in an empty sandbox. */
  rescued(snapshot: HeldSnapshot): void;
  /** The session goes on from the snapshot. */
  restored(snapshot: HeldSnapshot): void;
  /** Whether something that is under way in the session waits for it to come back. */
  isMissed(): boolean;
  /** The moment of the next look may have changed. */
  look(): void;
  /** It will not come back with what is under way in it. */
  giveUp(why: Failure): void;
  /** The session stays where it is: what waits for it does not run. */
  refuse(why: Failure): void;
}

export class Waking {
  readonly #row: SessionRow;
  readonly #store: SessionStore;
  readonly #env: Env;
  readonly #executions: Executions;
  readonly #deadlines: Deadlines;
  readonly #sandbox: SandboxKeeper;
  readonly #link: () => SessionLink;
  readonly #port: WakingPort;
  #waking: Promise<Outcome<null>> | undefined;
  /** The host that the session is leaving: taken again only where there is no other. */
  #left: string | undefined;

  constructor(parts: {
    row: SessionRow;
    store: SessionStore;
    env: Env;
    executions: Executions;
    deadlines: Deadlines;
    sandbox: SandboxKeeper;
    link: () => SessionLink;
    port: WakingPort;
  }) {
    this.#row = parts.row;
    this.#store = parts.store;
    this.#env = parts.env;
    this.#executions = parts.executions;
    this.#deadlines = parts.deadlines;
    this.#sandbox = parts.sandbox;
    this.#link = parts.link;
    this.#port = parts.port;
  }

  /**
   * Resolves when the session runs, at once where it is not suspended. Who comes meanwhile joins. `rescue`: with its workspace
   * alone, where this begins the attempt.
   */
  wake(rescue?: Rescue): Promise<Outcome<null>> {
    if (this.#row.maybe?.state !== 'suspended') return Promise.resolve(success(null));
    this.#waking ??= this.#wake(rescue)
      .catch((error: unknown): Outcome<null> => {
        logWarning('waking_failed', { detail: messageOf(error) });
        return failure('internal', 'the session could not be woken');
      })
      .then(async (woken) => {
        const answer = woken.ok ? woken : await withRescue(this.#row, this.#env, woken);
        this.#waking = undefined;
        if (!woken.ok) {
          this.#port.giveBackPlace();
          this.#mark(undefined);
          if (woken.code === 'snapshot_damaged' && this.#tries >= MAX_TRIES_OF_DAMAGED) {
            this.#port.giveUp(woken);
          }
          this.#planRetry(0);
          this.#port.refuse(woken);
        }
        return answer;
      });
    return this.#waking;
  }

  get isUnderWay(): boolean {
    return this.#waking !== undefined;
  }

  /** How often it was tried for what is under way in the session. */
  get #tries(): number {
    return this.#row.record.snapshot?.wake?.tries ?? 0;
  }

  /** From the alarm. */
  retry(nowMs: number): void {
    const atMs = wakeAt(this.#row.record);
    if (atMs !== null && nowMs >= atMs) void this.wake();
  }

  /** A call in the middle of its work, or a program that has an answer, would wait for ever where nobody else calls. */
  #planRetry(more: number): void {
    const { state, snapshot } = this.#row.record;
    if (state !== 'suspended' || snapshot === null) return;
    const tries = this.#tries + more;
    const atMs = Date.now() + nextWakeDelayMs(Math.max(0, tries - 1));
    const wake = this.#port.isMissed() ? { atMs, tries } : null;
    if (wake === null && snapshot.wake === null) return;
    this.#row.patch({ snapshot: { ...snapshot, wake } });
    this.#port.look();
  }

  get isLeaving(): boolean {
    return this.#left !== undefined;
  }

  /** From before the session is suspended: a call that waits wakes it at once. */
  async leaving<T>(hostId: string, work: () => Promise<T>): Promise<T> {
    this.#left = hostId;
    try {
      return await work();
    } finally {
      this.#left = undefined;
    }
  }

  /** What was asked for is of one attempt: an eviction may have left it of a former one. */
  #mark(asked: Rescue | undefined): void {
    const { state, snapshot } = this.#row.record;
    if (state !== 'suspended' || snapshot === null) return;
    const { rescue } = snapshot;
    const before = rescue?.before === undefined ? rescue : rescue.before;
    if (asked !== undefined) this.#row.patch({ snapshot: { ...snapshot, rescue: { ...asked, before } } });
    else if (before !== rescue) this.#row.patch({ snapshot: { ...snapshot, rescue: before } });
  }

  async #wake(rescue: Rescue | undefined): Promise<Outcome<null>> {
    this.#mark(rescue);
    // Before anything is tried: an eviction may come between.
    this.#planRetry(1);
    const taken = await this.#port.takePlace();
    if (!taken.ok) return taken;
    if (this.#row.record.state !== 'suspended') return this.#asItIs();
    const except: string[] = [];
    let last: Failure | undefined;
    for (let tried = 0; tried < MAX_HOSTS_TRIED; tried += 1) {
      const placed = await this.#place(except);
      if (this.#row.record.state !== 'suspended') return this.#asItIs();
      if (!placed.ok) return last ?? placed;
      const { hostId } = placed.value;
      this.#prepare(placed.value);
      const attached = await this.#sandbox.attach();
      if (attached.ok) return success(null);
      if (this.#row.record.state !== 'suspended') return this.#asItIs();
      this.#sandbox.abandon('not_restored');
      // One that is full has made nothing, and may have kept what the session comes back to.
      await (attached.code === 'host_full' ? this.#sandbox.forgetAtHost() : this.#sandbox.leaveHost());
      if (!OF_ONE_HOST.has(attached.code)) return attached;
      last = attached;
      except.push(hostId);
    }
    return last ?? failure('no_host_available', 'no host took the session');
  }

  #asItIs(): Outcome<null> {
    return this.#row.record.state === 'running' ? success(null) : notNow(this.#row);
  }

  async #place(except: readonly string[]): Promise<Outcome<Placement>> {
    const { facts, snapshot } = this.#row.record;
    if (snapshot === null) return failure('internal', 'the suspended session has no snapshot');
    const { sessionId, pool } = facts;
    const { rescue, requirements } = snapshot;
    const what =
      rescue === null
        ? { image: requirements.image, requires: requirements }
        : { image: rescue.imageDigest ?? rescue.image };
    const wish = { ...what, sessionId, except };
    const stub = this.#env.POOL.getByName(pool);
    const elsewhere =
      this.#left === undefined ? undefined : await stub.place({ ...wish, except: [...except, this.#left] });
    // The host that it was on last may have kept what it stored.
    return elsewhere?.ok === true ? elsewhere : stub.place({ ...wish, near: [facts.hostId] });
  }

  /** The row names the host and the epoch before anything is sent. */
  #prepare({ hostId, imageDigest }: Placement): void {
    const { facts, hostKeyX, epoch, snapshot } = this.#row.record;
    const isOther = hostId !== facts.hostId;
    if (isOther && mayLiePlain(snapshot, Date.now())) void this.#sandbox.letGoAtHost();
    // Receipts of the former host stay in the chain, and are verified with its key.
    if (isOther && hostKeyX !== null) this.#store.addFormerHost(facts.hostId, hostKeyX);
    this.#row.patch({
      facts: { ...facts, hostId },
      ...(snapshot === null || snapshot.rescue === null
        ? {}
        : { snapshot: { ...snapshot, rescue: { ...snapshot.rescue, imageDigest } } }),
      ...(isOther ? { hostKeyX: null } : {}),
      epoch: epoch + 1,
      sandbox: 'attaching',
      attachAtMs: Date.now(),
      linkDownAtMs: null,
      streamId: null,
      lastSeq: 0,
    });
    this.#link().fence();
  }

  /** The sandbox that was made of the snapshot is there: clocks go on, and what was kept for this may go. */
  restored(): void {
    const { snapshot, facts, expiresAtMs } = this.#row.record;
    if (snapshot === null) return;
    const { rescue } = snapshot;
    const goesOn = snapshot.isOwn && rescue === null;
    const nowMs = Date.now();
    logInfo(rescue === null ? 'session_restored' : 'session_rescued', {
      session_id: facts.sessionId,
      snapshot_id: snapshot.snapshotId,
    });
    this.#store.transaction(() => {
      for (const { execution_id, timeout_left_ms } of goesOn ? snapshot.executions : []) {
        const record = this.#executions.open.find(({ executionId }) => executionId === execution_id);
        if (record === undefined) continue;
        // What a host says is left is never more than there was.
        const leftMs = Math.min(timeout_left_ms, record.timeoutMs);
        this.#executions.patch(record, { deadlineAtMs: nowMs + leftMs + HOST_ANSWER_GRACE_MS });
      }
      const storedMs = snapshot.isOwn ? Math.max(0, nowMs - snapshot.atMs) : 0;
      this.#row.patch({
        snapshot: null,
        facts: imagedFacts(facts, snapshot),
        ...(rescue === null ? {} : { stateLost: true, shell: null }),
        generation: snapshot.generation + 1,
        lastActivityAtMs: nowMs,
        expiresAtMs: expiresAtMs === null ? null : expiresAtMs + storedMs,
      });
    });
    if (rescue !== null) this.#port.rescued(snapshot);
    for (const record of this.#executions.open) {
      if (this.#executions.isAwaited(record)) this.#deadlines.arm(record);
    }
    this.#port.restored(snapshot);
    this.#env.POOL.getByName(facts.pool)
      .placed({ sessionId: facts.sessionId })
      .catch(() => undefined);
    this.#port.moved();
  }
}

/** With the image of the sandbox that was made: a rescue may be in another one, and what it is taken back to later again in its own. */
function imagedFacts(facts: SessionFacts, { rescue, requirements }: HeldSnapshot): SessionFacts {
  if (rescue !== null) {
    return { ...facts, image: rescue.image, imageDigest: rescue.imageDigest ?? facts.imageDigest };
  }
  const { image } = requirements;
  return image === facts.imageDigest ? facts : { ...facts, image, imageDigest: image };
}
