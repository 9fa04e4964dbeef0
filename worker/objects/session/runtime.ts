/** The parts of a session object, wired: what happens when the link, the sandbox or an execution changes. */
import { failure, type Outcome } from '../../../shared/errors.ts';
import type { Execution } from '../../../shared/execution.ts';
import type { Configuration } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import { callObject } from '../../middleware/call-object.ts';
import { earliest } from '../earliest.ts';
import type { Account } from './account/account.ts';
import { accountOf } from './account/of-session.ts';
import { nextLook, standsStill } from './alarm/agenda.ts';
import type { AlarmClock } from './alarm/alarm-clock.ts';
import { beginEdgeCall } from './edge-calls/begin.ts';
import { DetachedCalls } from './edge-calls/detached.ts';
import { EdgeCalls } from './edge-calls/edge-calls.ts';
import { EdgeReceipts } from './edge-receipts/edge-receipts.ts';
import { EventLogs } from './event-logs/logs.ts';
import type { SessionEvents } from './events/events.ts';
import { eventsOf } from './events/of-session.ts';
import { SessionEventStreams } from './events/stream.ts';
import { Deadlines } from './executions/deadlines.ts';
import { Dispatch } from './executions/dispatch.ts';
import { Executions } from './executions/executions.ts';
import { giveUp, stop } from './executions/interruption.ts';
import { UnresponsiveLanes } from './executions/unresponsive-lanes.ts';
import { Pausing } from './lifecycle/pausing.ts';
import { Lineage } from './lineage/lineage.ts';
import { Acknowledgement } from './link/acknowledgement.ts';
import { Intake } from './link/intake.ts';
import { SessionLink } from './link/link.ts';
import { LinkChanges } from './link/link-changes.ts';
import { outputsOf } from './outputs/of-session.ts';
import type { Outputs } from './outputs/outputs.ts';
import type { ExecuteInput } from './port.ts';
import { programsOf } from './programs/of-session.ts';
import type { Programs } from './programs/programs.ts';
import { RestorePoints } from './restore-points/restore-points.ts';
import { type KeptSince, RetentionSweep } from './retention/retention-sweep.ts';
import type { ExecutionRecord } from './rows/records.ts';
import { SessionRow } from './rows/session-row.ts';
import { SessionStore } from './rows/store.ts';
import { Recovery } from './sandbox/recovery.ts';
import { Relocation } from './sandbox/relocation.ts';
import { type LostReason, SandboxKeeper } from './sandbox/sandbox.ts';
import { SandboxChanges } from './sandbox/sandbox-changes.ts';
import type { SessionParts } from './session-parts.ts';
import { suspensionOf, wakeAfterRestart, wakeForWaiting, wakingOf } from './suspension/of-session.ts';
import type { Suspension } from './suspension/suspension.ts';
import type { Waking } from './suspension/waking.ts';
import { Transfers } from './transfers/transfers.ts';

export interface RuntimePort {
  /** The first execution of a session that ends with it has ended. */
  ephemeralEnded(): void;
  /** The host is gone for good. */
  hostLost(): void;
  /** The host ended the sandbox of a session that is to be rebuilt. */
  sandboxGone(reason: LostReason): Promise<void>;
  /** The session is paused, or runs again. */
  moved(): void;
  /** A call of a program that runs beside it. */
  runInner(input: ExecuteInput): Promise<Outcome<Execution>>;
  /** An eviction came while the session was ending. */
  endingInterrupted(): void;
  /** What this execution did is to be taken back. */
  takeBack(record: ExecutionRecord): void;
}

export class SessionRuntime implements SessionParts {
  readonly store: SessionStore;
  readonly row: SessionRow;
  readonly logs: EventLogs;
  readonly executions: Executions;
  readonly link: SessionLink;
  readonly sandbox: SandboxKeeper;
  readonly dispatch: Dispatch;
  readonly transfers: Transfers;
  readonly programs: Programs;
  readonly edgeReceipts: EdgeReceipts;
  readonly edgeCalls: EdgeCalls;
  readonly detached: DetachedCalls;
  readonly deadlines: Deadlines;
  readonly pausing: Pausing;
  readonly suspension: Suspension;
  readonly waking: Waking;
  readonly restorePoints: RestorePoints;
  readonly lineage: Lineage;
  readonly clock: AlarmClock;
  readonly events: SessionEvents;
  readonly eventStreams: SessionEventStreams;
  readonly account: Account;
  readonly outputs: Outputs;
  readonly retention: RetentionSweep;
  readonly sandboxChanges: SandboxChanges;
  readonly #acknowledgement: Acknowledgement;
  readonly #intake: Intake;
  readonly #recovery: Recovery;
  readonly #port: RuntimePort;
  readonly #lanes: UnresponsiveLanes;
  readonly #links: LinkChanges;

  constructor(parts: {
    context: DurableObjectState;
    env: Env;
    configuration: Configuration;
    clock: AlarmClock;
    port: RuntimePort;
  }) {
    const { context, env, configuration } = parts;
    this.#port = parts.port;
    this.clock = parts.clock;
    this.store = new SessionStore(context);
    this.events = eventsOf({
      context,
      env,
      record: () => this.row.maybe,
      dueAt: (atMs) => this.clock.ensure(atMs),
    });
    this.row = new SessionRow(this.store, (from) => this.events.moved(from));
    this.eventStreams = new SessionEventStreams(
      this.events,
      () => this.row.maybe === undefined || this.row.record.state === 'destroyed',
    );
    this.edgeReceipts = new EdgeReceipts(context.storage, () => this.row.record, configuration);
    this.edgeCalls = new EdgeCalls(context.storage, this.edgeReceipts, {
      began: ({ execution_id, tool_name }) => {
        this.events.record({ type: 'execution.accepted', data: { execution_id, tool_name } });
        this.look();
      },
      ended: (execution) => {
        this.events.finished(execution);
        this.retention.begin();
        // The tenant hears of what is kept of it.
        if (this.row.isLive) this.account.settle(undefined, 0);
      },
    });
    const { row, store } = this;
    const link = () => this.link;
    this.account = accountOf({
      context,
      env,
      row,
      executions: () => this.executions,
      contentBytes: () =>
        this.executions.contentBytes + this.edgeCalls.contentBytes + this.programs.openBytes,
      dueAt: (atMs) => this.clock.ensure(atMs),
      heard: ({ webhooksSinceMs }) => this.events.heard(webhooksSinceMs),
    });
    this.outputs = outputsOf({
      context,
      env,
      configuration,
      row,
      store,
      roomAgain: () => this.logs.roomAgain(),
      look: () => this.look(),
    });
    this.retention = new RetentionSweep(row, {
      retention: (tenant) => callObject(() => env.TENANT.getByName(tenant).retention(), { safe: true }),
      expire: (since) => this.#expire(since),
      look: () => this.look(),
    });
    this.logs = new EventLogs(store, this.outputs, () => this.#acknowledgement.schedule());
    this.#acknowledgement = new Acknowledgement(this.logs, row.maybe?.lastSeq ?? 0, {
      write: (lastSeq) =>
        store.transaction(() => {
          this.executions.flush();
          row.patch({ lastSeq });
        }),
      send: (seq, beyond) => this.link.acknowledge(seq, beyond),
      takesSelective: () => this.link.hasLanes,
    });
    this.#links = new LinkChanges(this, this.#acknowledgement);
    this.#lanes = new UnresponsiveLanes(() => void this.dispatch.pump());
    this.sandboxChanges = new SandboxChanges(this, {
      links: this.#links,
      lanes: this.#lanes,
      rebuild: (reason) => this.#port.sandboxGone(reason),
    });
    this.executions = new Executions(row, store, this.logs, {
      stored: (record, ends) => this.outputs.ended(record.n, ends),
      lastSeq: () => this.#acknowledgement.seen,
      storing: (record) => this.events.accepted(record),
      ending: (record) => this.events.ended(record),
      awaited: (record) => this.deadlines.arm(record),
      used: (usage, executions) => this.account.settle(usage, executions),
      isTakenBack: (record, status) => this.restorePoints.isTakenBack(record, status),
      ended: (record) => this.#executionEnded(record),
    });
    this.sandbox = new SandboxKeeper({ row, env, configuration, link });
    this.deadlines = new Deadlines({
      mayHearLater: () => !this.link.isUp && row.maybe?.sandbox === 'ready',
      standsStill: () => row.maybe !== undefined && standsStill(row.maybe),
      answer: (record) =>
        this.executions.answer(record, () => failure('host_unresponsive', 'the host did not answer in time')),
      giveUp: (record) => giveUp(this, this.#lanes, record),
    });
    const relocation = new Relocation(row, store, env);
    this.#recovery = new Recovery(
      { row, sandbox: this.sandbox, relocation },
      {
        isLinkUp: () => this.link.isUp,
        hasWork: () =>
          this.executions.inFlight.length === 0 &&
          (this.transfers.isWaiting || this.executions.firstToSend !== undefined),
        usable: () => {
          this.transfers.usable();
          void this.dispatch.pump();
        },
        refuse: (why) => {
          this.transfers.refuseWaiting(why);
          const first = this.executions.firstToSend;
          if (first !== undefined) this.executions.end(first, { status: 'refused', reason: why.code });
        },
        hostLost: () => this.#port.hostLost(),
        rebuilt: () => this.sandboxChanges.rebuilt,
      },
    );
    this.dispatch = new Dispatch({
      row,
      executions: this.executions,
      configuration,
      link,
      port: {
        isHostBusy: (lane) =>
          this.#lanes.has(lane) ||
          this.#links.isLossExpected ||
          this.pausing.isPending ||
          this.suspension.isPending,
        prepare: () => {
          this.#recovery.start();
          this.look();
        },
        secure: (record) => this.restorePoints.secure(record),
        sent: (record) => {
          if (this.executions.isAwaited(record)) this.deadlines.arm(record);
          this.look();
        },
      },
    });
    this.pausing = new Pausing({
      row,
      executions: this.executions,
      dispatch: this.dispatch,
      deadlines: this.deadlines,
      link,
      port: { moved: () => this.moved() },
    });
    this.detached = new DetachedCalls(
      { env, configuration },
      {
        begin: (call) => beginEdgeCall(this, call, { isDetached: true }),
        progressed: (executionId, progress) => this.edgeCalls.progressed(executionId, progress),
        end: (execution) => this.edgeCalls.end(execution),
      },
    );
    this.transfers = new Transfers(row, configuration, {
      link,
      prepare: () => {
        this.#recovery.start();
        this.look();
      },
    });
    this.programs = programsOf(this, {
      context,
      env,
      configuration,
      logs: this.logs,
      receipts: this.edgeReceipts,
      events: this.events,
      stop: (record) => void stop(this, record),
      runInner: (input) => this.#port.runInner(input),
    });
    const moved = () => this.moved();
    this.suspension = suspensionOf(this, { env, configuration, moved });
    this.lineage = new Lineage(context, {
      isKept: () => row.maybe?.facts.onHostLoss === 'rebuild',
      release: (snapshotId) => this.suspension.records.release(snapshotId),
    });
    this.restorePoints = new RestorePoints({
      context,
      row,
      suspension: this.suspension,
      mayWait: () =>
        row.maybe?.state !== 'running' ||
        row.record.sandbox !== 'ready' ||
        !this.link.isUp ||
        this.pausing.isPending ||
        this.suspension.isPending,
      refuse: (record, why) => this.executions.end(record, { status: 'refused', reason: why.code }),
    });
    this.waking = wakingOf(this, { env, moved });
    this.#intake = new Intake({
      row,
      logs: this.logs,
      executions: this.executions,
      sandbox: this.sandbox,
      acknowledgement: this.#acknowledgement,
      outputs: this.outputs,
      configuration,
      port: {
        ready: () => this.sandboxChanges.ready(),
        sandboxLost: (reason) => this.sandboxChanges.lost(reason),
        sandboxFailed: (record) => {
          this.sandboxChanges.sendAgain(record);
          this.sandboxChanges.lost('crashed');
        },
        inputTaken: (executionId, bytes) => this.dispatch.input.taken(executionId, bytes),
        inputRefused: (grant) => this.transfers.refused(grant) || this.dispatch.input.refused(grant),
        paused: () => this.pausing.paused(),
        resumed: () => this.pausing.resumed(),
        suspended: (frame) => this.suspension.suspended(frame),
        suspendFailed: (frame) => this.suspension.failed(frame),
        commandRefused: ({ grant_jti, code, detail }) =>
          this.pausing.refused(grant_jti, code, detail) || this.suspension.refused(grant_jti, code, detail),
        program: (frame, payload) => this.programs.take(frame, payload),
        receiptRefused: () => this.sandboxChanges.receiptRefused(),
        useless: () => this.link.tookUseless(),
        endedLate: (record) => this.#lanes.endedLate(this.dispatch.laneOf(record), record.n),
      },
    });
    this.link = new SessionLink(context, configuration.origin, row, {
      streamBegins: (streamId) => this.#links.streamBegins(streamId),
      linkUp: () => this.#links.up(),
      linkDown: () => this.#links.down(),
      frame: (frame, payload) => this.#intake.take(frame, payload),
      transfer: (frame, payload) => this.transfers.receive(frame, payload),
    });
    this.#recover();
  }

  /** Memory is new: what rows say is under way goes on. */
  #recover(): void {
    const record = this.row.maybe;
    if (record !== undefined) void this.edgeReceipts.signed();
    // One of a former version has a history and never looked after it.
    if (this.executions.total > 0) this.retention.begin();
    this.events.recover();
    this.outputs.recover((n) => this.executions.open.some((open) => open.n === n));
    if (record?.state === 'destroying') this.#port.endingInterrupted();
    if (record === undefined || !this.row.isLive) return;
    if (!this.link.isUp && record.sandbox === 'ready' && record.linkDownAtMs === null) {
      this.row.patch({ linkDownAtMs: Date.now() });
    }
    this.suspension.recover();
    wakeAfterRestart(this);
    this.look();
    this.programs.recover();
    void this.dispatch.pump();
  }

  /** Sees to it that the alarm rings when it has to. */
  look(): void {
    if (this.row.maybe !== undefined) this.clock.ensure(this.nextLook());
  }

  nextLook(): number | null {
    const { record } = this.row;
    return earliest([
      nextLook(record, this.executions.open, Date.now()),
      this.account.dueAtMs,
      this.outputs.dueAtMs,
      this.retention.dueAtMs,
      this.programs.nextMoment(),
      this.edgeCalls.nextMoment(),
      this.events.dueAtMs,
    ]);
  }

  /** What is in R2 of what goes now is removed from there afterwards, and the tenant hears of it all. */
  #expire(since: KeptSince): boolean {
    const [executions, edgeCalls] = this.store.transaction(() => [
      this.executions.expire(since),
      this.edgeCalls.expire(since),
    ]);
    this.outputs.kick();
    this.account.settle(undefined, 0);
    return executions === true || edgeCalls === true;
  }

  /** The session is paused, suspended, or runs again. */
  moved(): void {
    for (const record of this.executions.open) this.logs.of(record).wake();
    this.look();
    this.account.moved(this.waking.isLeaving || this.executions.firstToSend !== undefined);
    this.#port.moved();
    void this.dispatch.pump();
    wakeForWaiting(this);
  }

  #executionEnded(record: ExecutionRecord): void {
    this.deadlines.disarm(record);
    this.programs.ended(record);
    this.retention.begin();
    // The row says so at once, with the end: no call comes between.
    if (record.rolledBack) this.#port.takeBack(record);
    if (this.row.record.facts.ephemeral && this.row.isLive) this.#port.ephemeralEnded();
    else void this.dispatch.pump();
    this.look();
  }
}
