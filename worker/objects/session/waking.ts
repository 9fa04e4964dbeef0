/** Brings a suspended session back: a host that fits its snapshot, a sandbox made of it, and a new epoch. */
import { type ErrorCode, type Failure, failure, type Outcome, success } from '../../../shared/errors.ts';
import { HOST_ANSWER_GRACE_MS } from '../../../shared/limits.ts';
import type { Env } from '../../env.ts';
import { logInfo, logWarning, messageOf } from '../log.ts';
import type { Deadlines } from './deadlines.ts';
import type { Executions } from './executions.ts';
import type { SessionLink } from './link.ts';
import { notNow } from './pausing.ts';
import type { SandboxKeeper } from './sandbox.ts';
import type { SessionRow } from './session-row.ts';
import type { SessionStore } from './store.ts';

const MAX_HOSTS_TRIED = 3;
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
  /** The snapshot is needed no more. */
  release(snapshotId: string): void;
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

  /** Resolves when the session runs, at once where it is not suspended. Who comes meanwhile joins. */
  wake(): Promise<Outcome<null>> {
    if (this.#row.maybe?.state !== 'suspended') return Promise.resolve(success(null));
    this.#waking ??= this.#wake()
      .catch((error: unknown): Outcome<null> => {
        logWarning('waking_failed', { detail: messageOf(error) });
        return failure('internal', 'the session could not be woken');
      })
      .then((woken) => {
        this.#waking = undefined;
        if (!woken.ok) this.#port.refuse(woken);
        return woken;
      });
    return this.#waking;
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

  async #wake(): Promise<Outcome<null>> {
    const except: string[] = [];
    let last: Failure | undefined;
    for (let tried = 0; tried < MAX_HOSTS_TRIED; tried += 1) {
      const placed = await this.#place(except);
      if (this.#row.record.state !== 'suspended') return this.#asItIs();
      if (!placed.ok) return last ?? placed;
      const hostId = placed.value;
      this.#prepare(hostId);
      const attached = await this.#sandbox.attach();
      if (attached.ok) return success(null);
      if (this.#row.record.state !== 'suspended') return this.#asItIs();
      this.#sandbox.abandon('not_restored');
      await this.#sandbox.forgetAtHost();
      if (!OF_ONE_HOST.has(attached.code)) return attached;
      last = attached;
      except.push(hostId);
    }
    return last ?? failure('no_host_available', 'no host took the session');
  }

  #asItIs(): Outcome<null> {
    return this.#row.record.state === 'running' ? success(null) : notNow(this.#row);
  }

  async #place(except: readonly string[]): Promise<Outcome<string>> {
    const { facts, snapshot } = this.#row.record;
    if (snapshot === null) return failure('internal', 'the suspended session has no snapshot');
    const { imageDigest: image, sessionId, pool } = facts;
    const wish = { image, sessionId, except, requires: snapshot.requirements };
    const stub = this.#env.POOL.getByName(pool);
    const elsewhere =
      this.#left === undefined ? undefined : await stub.place({ ...wish, except: [...except, this.#left] });
    const placed = elsewhere?.ok === true ? elsewhere : await stub.place(wish);
    return placed.ok ? success(placed.value.hostId) : placed;
  }

  /** The row names the host and the epoch before anything is sent. */
  #prepare(hostId: string): void {
    const { facts, hostKeyX, epoch } = this.#row.record;
    const isOther = hostId !== facts.hostId;
    // Receipts of the former host stay in the chain, and are verified with its key.
    if (isOther && hostKeyX !== null) this.#store.addFormerHost(facts.hostId, hostKeyX);
    this.#row.patch({
      facts: { ...facts, hostId },
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
    const nowMs = Date.now();
    logInfo('session_restored', { session_id: facts.sessionId, snapshot_id: snapshot.snapshotId });
    this.#store.transaction(() => {
      for (const { execution_id, timeout_left_ms } of snapshot.isOwn ? snapshot.executions : []) {
        const record = this.#executions.open.find(({ executionId }) => executionId === execution_id);
        if (record === undefined) continue;
        // What a host says is left is never more than there was.
        const leftMs = Math.min(timeout_left_ms, record.timeoutMs);
        this.#executions.patch(record, { deadlineAtMs: nowMs + leftMs + HOST_ANSWER_GRACE_MS });
      }
      const storedMs = snapshot.isOwn ? Math.max(0, nowMs - snapshot.atMs) : 0;
      this.#row.patch({
        snapshot: null,
        generation: snapshot.generation + 1,
        lastActivityAtMs: nowMs,
        expiresAtMs: expiresAtMs === null ? null : expiresAtMs + storedMs,
      });
    });
    for (const record of this.#executions.open) {
      if (this.#executions.isAwaited(record)) this.#deadlines.arm(record);
    }
    if (snapshot.isOwn) this.#port.release(snapshot.snapshotId);
    this.#env.POOL.getByName(facts.pool)
      .placed({ sessionId: facts.sessionId })
      .catch(() => undefined);
    this.#port.moved();
  }
}
