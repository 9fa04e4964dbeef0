/**
 * Has the host make a snapshot of the sandbox: one that the session moves into, after which it holds no host, or one
 * beside it. The session has moved when its row says so; a host that was not told yet is told by its link.
 */
import { utf8 } from '../../../../shared/encoding.ts';
import { type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { SequencedUp } from '../../../../shared/frames.ts';
import { newId } from '../../../../shared/ids.ts';
import { isErrorCode } from '../../../../shared/problem.ts';
import type { CarriedExecution, SuspendPayload } from '../../../../shared/snapshot.ts';
import type { Configuration } from '../../../configuration.ts';
import type { Env } from '../../../env.ts';
import { snapshotKey } from '../../../snapshots/snapshot-keys.ts';
import { signTransferToken } from '../../../snapshots/transfer-token.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { NewSnapshot, SnapshotFacts } from '../../snapshots/port.ts';
import { SUSPEND_PATIENCE_MS } from '../alarm/agenda.ts';
import type { Deadlines } from '../executions/deadlines.ts';
import type { Dispatch } from '../executions/dispatch.ts';
import type { Executions } from '../executions/executions.ts';
import { notNow, type Pausing } from '../lifecycle/pausing.ts';
import type { SessionLink } from '../link/link.ts';
import type { ForkPoint, SnapshotWish } from '../port.ts';
import type { ForkedProgram } from '../programs/forked.ts';
import { isToBeSent, type SessionRecord } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { SessionStore } from '../rows/store.ts';
import type { SandboxKeeper } from '../sandbox/sandbox.ts';
import type { Transfers } from '../transfers/transfers.ts';
import type { PendingSnapshot } from './held-snapshot.ts';
import { moveIntoSnapshot } from './move-into-snapshot.ts';
import { notRecorded, SnapshotRecords, type Suspended } from './snapshot-records.ts';
import { storedMove } from './stored-move.ts';

type SuspendFailed = Extract<SequencedUp, { type: 'suspend_failed' }>;

export const SANDBOX_GONE = failure('sandbox_failed', 'the sandbox is gone');

/**
 * Whether the session is in the snapshot that it was about to move into; `unsure` while the storage does not say, and where the
 * host came back meanwhile, which then says it itself.
 */
export type MoveJudgement = 'moved' | 'not_moved' | 'unsure';

export interface SuspensionPort {
  moved(): void;
  /** What waited while the host was at it may be sent. */
  pump(): void;
  look(): void;
  /** Whether the session is to come back at once, be it after an eviction. */
  isToWake(): boolean;
  /** One beside the session is stored: belongs to the write of that. */
  snapshotMade(snapshot: { snapshot_id: string; bytes: number; stored_bytes: number }): void;
  /** One that lasts is stored as a whole, and known to the index. */
  kept(snapshot: SnapshotFacts): void;
  /** Lets go of a snapshot that may be done without; false where there is none. */
  giveWay(): Promise<boolean>;
  /** Those of the executions that are programs and wait for their tools. */
  forked(executions: readonly CarriedExecution[]): ForkedProgram[];
  /** The host ends the sandbox, and the session is not where it says. */
  sandboxLost(reason: string): void;
}

/** What the host is asked for. */
type SnapshotRequest = Pick<PendingSnapshot, 'snapshotId' | 'leaveRunning' | 'workspace'>;

interface Made {
  frame: Suspended;
  /** Programs that waited for their tools. */
  programs: ForkedProgram[];
  shell: SessionRecord['shell'];
}

interface Asked {
  snapshotId: string;
  jti: string | undefined;
  settle: (outcome: Outcome<Made>) => void;
}

export interface SuspensionParts {
  row: SessionRow;
  store: SessionStore;
  env: Env;
  configuration: Configuration;
  executions: Executions;
  dispatch: Dispatch;
  deadlines: Deadlines;
  pausing: Pausing;
  sandbox: SandboxKeeper;
  transfers: Transfers;
  link: () => SessionLink;
  port: SuspensionPort;
}

export class Suspension {
  readonly #parts: SuspensionParts;
  readonly records: SnapshotRecords;
  #asked: Asked | undefined;
  #judging: Promise<MoveJudgement> | undefined;
  /** That came up while this object was in memory. */
  #links = 0;

  constructor(parts: SuspensionParts) {
    this.#parts = parts;
    this.records = new SnapshotRecords(parts);
  }

  get #record() {
    return this.#parts.row.record;
  }

  /** Whether the host is making a snapshot: nothing is sent to the sandbox meanwhile. */
  get isPending(): boolean {
    return this.#parts.row.maybe !== undefined && this.#record.pendingSnapshot !== null;
  }

  /** Moves the session into a snapshot. */
  async suspend(): Promise<Outcome<null>> {
    if (this.#record.state === 'suspended') return success(null);
    const made = await this.#make({ kind: 'suspension', name: '', leaveRunning: false });
    return made.ok ? success(null) : made;
  }

  /** A snapshot beside the session, which goes on. */
  async snapshot({ replacesLost, ...wish }: SnapshotWish): Promise<Outcome<SnapshotFacts>> {
    if (replacesLost === true && this.#record.state === 'running') {
      const ready = await this.#parts.transfers.ready();
      if (!ready.ok) return ready;
    }
    const made = await this.#makeBeside(wish);
    return made.ok ? success(made.value.snapshot) : made;
  }

  /** The same for sessions that are made of it at once, with the programs that wait for their tools. */
  fork(): Promise<Outcome<ForkPoint>> {
    return this.#makeBeside({ kind: 'fork', name: '' });
  }

  async #makeBeside(wish: SnapshotWish): Promise<Outcome<ForkPoint>> {
    const made = await this.#make({ ...wish, leaveRunning: true });
    if (!made.ok) return made;
    try {
      const snapshot = await this.records.factsOf(made.value.frame, made.value.shell);
      await this.records.complete(snapshot);
      if (wish.kind !== 'fork' && this.#parts.row.isLive) this.#parts.port.kept(snapshot);
      return success({ snapshot, programs: made.value.programs });
    } catch (error: unknown) {
      logWarning('snapshot_not_kept', { detail: messageOf(error) });
      return notRecorded();
    }
  }

  async #make(wish: SnapshotWish & { leaveRunning: boolean }): Promise<Outcome<Made>> {
    const fault = this.#fault();
    if (fault !== undefined) return fault;
    const { facts } = this.#record;
    const { tenant, subject, sessionId } = facts;
    const { leaveRunning, kind, name, snapshotId = newId('snp') } = wish;
    // Where it is brought back at once, or for one call alone, the checkpoint will do.
    const workspace = kind === 'named' || (kind === 'suspension' && !this.#parts.port.isToWake());
    // Taken at once, so that of two that ask only one is first.
    const pendingSnapshot = { snapshotId, leaveRunning, workspace, atMs: Date.now() };
    this.#parts.row.patch({ pendingSnapshot: { ...pendingSnapshot, isSent: false, unsure: null } });
    const begun = await this.#begin({ snapshotId, sessionId, tenant, subject, kind, name });
    if (!begun.ok || this.#record.pendingSnapshot?.snapshotId !== snapshotId) {
      this.#over(snapshotId);
      return begun.ok ? notNow(this.#parts.row) : begun;
    }
    this.#parts.transfers.endAll(failure('transfer_failed', 'a snapshot of the session is being made'));
    this.#parts.port.look();
    return this.#ask(pendingSnapshot);
  }

  async #begin(snapshot: NewSnapshot): Promise<Outcome<null>> {
    const begun = await this.records.begin(snapshot);
    if (begun.ok || begun.code !== 'quota_exceeded') return begun;
    return (await this.#parts.port.giveWay()) ? this.records.begin(snapshot) : begun;
  }

  async #ask(wish: SnapshotRequest): Promise<Outcome<Made>> {
    const { promise, resolve } = Promise.withResolvers<Outcome<Made>>();
    this.#asked = { snapshotId: wish.snapshotId, jti: undefined, settle: resolve };
    if (!(await this.#send(wish)) && this.#isOf(wish.snapshotId)) {
      this.#failed(wish.snapshotId, failure('host_unresponsive', 'the link to the host is down'));
    }
    return promise;
  }

  #isOf(snapshotId: string): boolean {
    return this.#record.pendingSnapshot?.snapshotId === snapshotId;
  }

  /** Memory is new: what the host was not told of it never makes. */
  recover(): void {
    const record = this.#parts.row.maybe;
    const pending = record?.pendingSnapshot;
    if (pending?.isSent === false) {
      this.#failed(pending.snapshotId, failure('suspend_failed', 'the host was not asked'));
    } else if (record?.sandbox === 'lost') {
      void this.sandboxGone('sandbox_lost', SANDBOX_GONE);
    }
  }

  /** The word to the host may have been lost with the former link: a host makes a snapshot once, however often it is told. */
  linkUp(): void {
    this.#links += 1;
    const pending = this.#parts.row.maybe?.pendingSnapshot;
    if (pending?.isSent !== true) return;
    // Its host lives after all, and says itself what came of it.
    if (pending.unsure !== null && this.#record.sandbox === 'ready') {
      this.#parts.row.patch({ pendingSnapshot: { ...pending, unsure: null } });
      this.#parts.port.look();
    }
    this.#asked ??= { snapshotId: pending.snapshotId, jti: undefined, settle: () => undefined };
    void this.#send(pending);
  }

  /** Each sending has a grant of its own. */
  async #send(wish: SnapshotRequest): Promise<boolean> {
    try {
      const payload = await this.#payload(wish);
      return await this.#parts.dispatch.command('suspend', payload, (jti) => {
        const pending = this.#record.pendingSnapshot;
        if (pending?.snapshotId !== wish.snapshotId) return false;
        if (this.#asked?.snapshotId === wish.snapshotId) this.#asked.jti = jti;
        if (!pending.isSent) this.#parts.row.patch({ pendingSnapshot: { ...pending, isSent: true } });
        return true;
      });
    } catch (error: unknown) {
      logWarning('suspend_not_sent', { detail: messageOf(error) });
      return false;
    }
  }

  async #payload({ snapshotId, leaveRunning, workspace }: SnapshotRequest): Promise<Uint8Array> {
    const { configuration, link } = this.#parts;
    const { facts, epoch } = this.#record;
    const { tenant, sessionId, hostId } = facts;
    const claims = { host: hostId, tenant, session: sessionId, snapshot: snapshotId, epoch };
    const content: SuspendPayload = {
      snapshot_id: snapshotId,
      key: await snapshotKey(configuration.snapshotRoot, { tenant, snapshotId }),
      transfer_token: await signTransferToken({ ...claims, direction: 'put' }, configuration),
      leave_running: leaveRunning,
      ...(workspace && link().storesWorkspaces ? { workspace } : {}),
    };
    return utf8(JSON.stringify(content));
  }

  #fault(): Failure | undefined {
    const { row, pausing, executions, link } = this.#parts;
    const { state, sandbox, pendingSnapshot } = this.#record;
    if (state !== 'running' && state !== 'paused') return notNow(row);
    if (sandbox === 'lost' && this.#parts.sandbox.attaching === undefined) {
      const message = 'the sandbox was lost, and its state with it: the next call begins with an empty one';
      return failure('session_not_running', message);
    }
    if (sandbox !== 'ready' || pendingSnapshot !== null || pausing.isPending) {
      const what = sandbox === 'ready' ? 'another pause or snapshot is under way' : 'there is no sandbox now';
      return failure('session_not_running', what, { retry_after_s: 1 });
    }
    if (state === 'paused' && executions.firstToSend !== undefined) {
      return failure('session_not_running', 'calls wait for the paused session to go on');
    }
    link().dropIfSilent(Date.now());
    if (!link().isUp)
      return failure('host_unresponsive', 'the link to the host is down', { retry_after_s: 1 });
    return undefined;
  }

  /** All of it is stored. Gives what is to be done once the host was told that this is kept. */
  suspended(frame: Suspended): () => void {
    const isKnown = this.#asked?.snapshotId === frame.snapshot_id;
    const { state, pendingSnapshot } = this.#record;
    const isPending = pendingSnapshot?.snapshotId === frame.snapshot_id;
    if (frame.left_running) {
      if (isPending && !pendingSnapshot.leaveRunning) {
        this.#failed(frame.snapshot_id, failure('suspend_failed', 'the host let the session run on'));
        return () => undefined;
      }
      // Now, for the programs go on.
      const programs = this.#parts.port.forked(frame.executions);
      const { shell } = this.#record;
      if (isKnown) this.#asked?.settle(success({ frame, programs, shell }));
      this.#over(frame.snapshot_id);
      const { snapshot_id, bytes, stored_bytes } = frame;
      if (isPending) this.#parts.port.snapshotMade({ snapshot_id, bytes, stored_bytes });
      return () => this.#parts.port.pump();
    }
    if (state !== 'running' && state !== 'paused') return () => undefined;
    // Of one that was given up nothing may be stored any more, and its host ends the sandbox all the same.
    if (!isPending || pendingSnapshot.leaveRunning) {
      return () => this.#parts.port.sandboxLost('suspended_too_late');
    }
    moveIntoSnapshot(this.#parts, frame, { isStopped: false, isToWake: this.#parts.port.isToWake() });
    return () => {
      this.#moved(frame, 'suspended');
      void this.#tellMoved(frame);
    };
  }

  #moved(frame: Suspended, reason: string): void {
    if (this.#asked?.snapshotId === frame.snapshot_id) {
      this.#asked.settle(success({ frame, programs: [], shell: this.#record.shell }));
    }
    this.#asked = undefined;
    this.#parts.sandbox.abandon(reason);
    this.#parts.port.moved();
  }

  /** The sandbox is gone. Where it was about to move, calls wait until it is known whether it has. */
  async sandboxGone(reason: string, why: Failure): Promise<void> {
    if (!this.#isMoving) {
      this.cancel(why);
      return;
    }
    const judgement = await this.takeIn(reason).catch((error: unknown) => {
      logWarning('move_not_judged', { detail: messageOf(error) });
      return 'not_moved' as const;
    });
    if (judgement === 'not_moved') this.cancel(why);
  }

  get #isMoving(): boolean {
    const pending = this.#parts.row.maybe?.pendingSnapshot ?? null;
    return pending !== null && !pending.leaveRunning && pending.isSent;
  }

  /**
   * The host that was asked to move the session will not say whether it has. Where all of the snapshot is stored the session
   * is in it, for its sandbox stood still since; of the calls in it nobody knows what came of them, so they do not go on.
   * While the storage does not say, the snapshot is kept, and the alarm looks again.
   */
  takeIn(reason: string): Promise<MoveJudgement> {
    const { pendingSnapshot } = this.#record;
    if (pendingSnapshot === null || !this.#isMoving) return Promise.resolve('not_moved');
    this.#judging ??= this.#takeIn(pendingSnapshot.snapshotId, reason).finally(() => {
      this.#judging = undefined;
    });
    return this.#judging;
  }

  async #takeIn(snapshotId: string, reason: string): Promise<MoveJudgement> {
    const { row, env } = this.#parts;
    const links = this.#links;
    const stored = await storedMove(row, env, snapshotId);
    const { state, sandbox: standing, pendingSnapshot } = this.#record;
    if (standing === 'ready' && this.#links !== links) return state === 'suspended' ? 'moved' : 'unsure';
    if (pendingSnapshot?.snapshotId !== snapshotId) return state === 'suspended' ? 'moved' : 'not_moved';
    if (state !== 'running' && state !== 'paused') return 'not_moved';
    if (!stored.ok) {
      if (Date.now() >= pendingSnapshot.atMs + SUSPEND_PATIENCE_MS) return 'not_moved';
      row.patch({ pendingSnapshot: { ...pendingSnapshot, unsure: reason } });
      this.#parts.port.look();
      return 'unsure';
    }
    const found = stored.value;
    if (found === null) return 'not_moved';
    const { executions, sandbox } = this.#parts;
    for (const record of executions.open.slice()) {
      if (!isToBeSent(record)) executions.end(record, { status: 'unknown', reason });
    }
    moveIntoSnapshot(this.#parts, found.frame, {
      isStopped: found.hadCalls,
      isToWake: this.#parts.port.isToWake(),
    });
    this.#moved(found.frame, reason);
    // Both are of the host that it leaves, and calls that wait are on their way to the next one already.
    const told = this.#tellMoved(found.frame);
    // Should it live after all, it is told to end.
    await sandbox.sendDestroy().catch((error: unknown) => {
      logWarning('destroy_not_sent', { detail: messageOf(error) });
    });
    await told;
    return 'moved';
  }

  /** The index asks by itself for what it was not told. */
  async #tellMoved(frame: Suspended): Promise<void> {
    try {
      const { shell } = this.#record;
      await this.#parts.sandbox.forgetAtHost();
      await this.records.complete(await this.records.factsOf(frame, shell));
    } catch (error: unknown) {
      logWarning('suspension_not_told', { detail: messageOf(error) });
    }
  }

  /** The sandbox runs on as it was. */
  failed({ snapshot_id, code, detail }: SuspendFailed): void {
    this.#failed(snapshot_id, failure(isErrorCode(code) ? code : 'suspend_failed', detail));
  }

  /** Whether the grant was one of these. */
  refused(jti: string | null, code: string, detail: string): boolean {
    const asked = this.#asked;
    if (asked === undefined || jti === null || asked.jti !== jti) return false;
    this.#failed(asked.snapshotId, failure('suspend_failed', `${code}: ${detail}`));
    return true;
  }

  /** The sandbox is gone, or the session ends. */
  cancel(why: Failure): void {
    const pending = this.#parts.row.maybe?.pendingSnapshot;
    if (pending !== undefined && pending !== null) this.#failed(pending.snapshotId, why);
  }

  /** From the alarm: a host that never answered. Of one that is gone it is judged whether the session has moved. */
  checkOverdue(nowMs: number): void {
    const pending = this.#record.pendingSnapshot;
    if (pending === null || pending.unsure !== null || nowMs < pending.atMs + SUSPEND_PATIENCE_MS) return;
    this.#failed(pending.snapshotId, failure('suspend_failed', 'the host did not answer in time'));
  }

  #failed(snapshotId: string, why: Failure): void {
    if (this.#asked?.snapshotId === snapshotId) this.#asked.settle(why);
    this.#over(snapshotId);
    void this.records.release(snapshotId);
    this.#parts.port.pump();
  }

  #over(snapshotId: string): void {
    if (this.#asked?.snapshotId === snapshotId) this.#asked = undefined;
    if (this.#record.pendingSnapshot?.snapshotId === snapshotId) {
      this.#parts.row.patch({ pendingSnapshot: null });
    }
  }
}
