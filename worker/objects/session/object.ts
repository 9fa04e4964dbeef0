/** The session object: the surface that the Worker, the host object and the runtime call. */
import { DurableObject } from 'cloudflare:workers';
import type { SealedCallback } from '../../../shared/callback.ts';
import type { Program, ToolResult } from '../../../shared/code-mode.ts';
import { sha256Hex } from '../../../shared/digest.ts';
import type { Envelope } from '../../../shared/dsse.ts';
import { type ErrorCode, failure, type Outcome, success } from '../../../shared/errors.ts';
import type { Execution, StreamName } from '../../../shared/execution.ts';
import type { Rollback } from '../../../shared/rollback.ts';
import type { Resume, Session, UpdateSession } from '../../../shared/session.ts';
import { type Configuration, configurationOf } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import { readIdentity, SessionLinkIdentitySchema } from '../../links/identity.ts';
import type { EdgeProgress } from '../../tools/edge-execution.ts';
import type { Caller } from '../caller.ts';
import type { SnapshotFacts } from '../snapshots/port.ts';
import type { AccountTerms } from '../tenant/ledger/account.ts';
import { ring } from './alarm/alarm.ts';
import { AlarmClock } from './alarm/alarm-clock.ts';
import { beginEdgeCall } from './edge-calls/begin.ts';
import type { DetachedEdgeCall } from './edge-calls/detached-call.ts';
import type { EdgeCall } from './edge-calls/edge-call.ts';
import { answerOf, openExecutionEvents, openSessionEvents } from './event-logs/stream-requests.ts';
import { accept, find, findKept, readersFault, streamOf, wakeFor } from './executions/calls.ts';
import { getExecution, list, recall, waitCall } from './executions/found.ts';
import { interruptIn } from './executions/interruption.ts';
import { noteUnmade } from './executions/unmade.ts';
import { readExecuteInput } from './internal-request.ts';
import { createSession, formerCreate, notFound, recordInTenant, viewOf } from './lifecycle/creation.ts';
import { leaveHost } from './lifecycle/draining.ts';
import { confirmGone, endSession, loseHost, resumeEnding } from './lifecycle/ending.ts';
import { migrateSession } from './lifecycle/migration.ts';
import { rebuild } from './lifecycle/rebuilding.ts';
import { rescueSession } from './lifecycle/rescue.ts';
import { updateSession } from './lifecycle/settings.ts';
import { extentFor, pieceFor } from './outputs/calls.ts';
import type { OutputAt, OutputExtent } from './outputs/port.ts';
import {
  type ApprovalDecision,
  type ApprovalFacts,
  type AwaitedCall,
  type CreateInput,
  type ExecuteInput,
  type ExecutionPage,
  type ExecutionQuery,
  type ForkPoint,
  type HostNotice,
  INTERNAL_PATHS,
  type ReceiptExport,
  type ReceiptPage,
  type SessionPort,
  type SnapshotWish,
} from './port.ts';
import { answerCalls, beginProgram, programOf, waitProgram } from './programs/calls.ts';
import type { ProgramFacts } from './programs/port.ts';
import { receiptExport, receiptOf } from './receipts/receipts.ts';
import { rollBack, rollbackTarget, takeBack } from './restore-points/rollback.ts';
import type { ExecutionRecord } from './rows/records.ts';
import { SessionRuntime } from './runtime.ts';
import { isHeld, keptSnapshot } from './suspension/kept-snapshots.ts';
import { openTerminal } from './terminal/terminal.ts';
import { serveTransfer } from './transfers/transfer-calls.ts';

export class SessionObject extends DurableObject<Env> implements SessionPort {
  #configuration: Configuration | undefined;
  #runtime: SessionRuntime | undefined;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    void ctx.blockConcurrencyWhile(async () => {
      const clock = new AlarmClock(ctx.storage);
      await clock.load();
      const configuration = await configurationOf(env);
      this.#configuration = configuration;
      this.#runtime = new SessionRuntime({
        context: ctx,
        env,
        configuration,
        clock,
        port: {
          ephemeralEnded: () => ctx.waitUntil(endSession(this.#parts, env, 'session_ended')),
          moved: () => ctx.waitUntil(recordInTenant(this.#parts, env)),
          runInner: (input) => this.#runInner(input),
          hostLost: () => ctx.waitUntil(loseHost(this.#parts, env)),
          sandboxGone: (reason) => rebuild(this.#parts, env, reason),
          // The object has no parts yet when this is found.
          takeBack: (record) => ctx.waitUntil(takeBack(this.#parts, record)),
          endingInterrupted: () => queueMicrotask(() => ctx.waitUntil(resumeEnding(this.#parts, env))),
        },
      });
    });
  }

  get #parts(): SessionRuntime {
    if (this.#runtime === undefined) throw new Error('the object did not start');
    return this.#runtime;
  }

  async create(input: CreateInput): Promise<Outcome<Session>> {
    return createSession(this.#parts, this.env, input);
  }

  async join(caller: Caller): Promise<Outcome<Session | null>> {
    return formerCreate(this.#parts, caller) ?? success(null);
  }

  async describe(caller: Caller): Promise<Outcome<Session>> {
    return this.#parts.row.ownedBy(caller) === undefined ? notFound() : success(viewOf(this.#parts));
  }

  async update(caller: Caller, update: UpdateSession): Promise<Outcome<Session>> {
    return updateSession(this.#parts, this.env, { caller, update });
  }

  async destroy(caller: Caller): Promise<Outcome<null>> {
    const record = this.#parts.row.ownedBy(caller);
    if (record === undefined || record.state === 'destroying') return notFound();
    await endSession(this.#parts, this.env, 'session_deleted');
    return success(null);
  }

  async execute(input: ExecuteInput): Promise<Outcome<Execution>> {
    // What is detached is read by its events, every byte of it.
    const accepted = await this.#accept(input, input.body.detach ? 'full' : 'bounded');
    if (!accepted.ok) return accepted;
    const { executions } = this.#parts;
    return input.body.detach ? success(executions.view(accepted.value)) : executions.wait(accepted.value);
  }

  async accept(input: ExecuteInput): Promise<Outcome<Execution>> {
    const accepted = await this.#accept(input, input.body.stream ? 'full' : 'bounded');
    return accepted.ok ? success(this.#parts.executions.view(accepted.value)) : accepted;
  }

  async wait(caller: Caller, executionId: string): Promise<Outcome<Execution>> {
    const found = findKept(this.#parts, caller, executionId);
    return found.ok ? this.#parts.executions.wait(found.value) : found;
  }

  async #accept(input: ExecuteInput, read: 'full' | 'bounded'): Promise<Outcome<ExecutionRecord>> {
    const text = JSON.stringify(input.body.arguments);
    const sha256 = await sha256Hex(text);
    const woken = await wakeFor(this.#parts, input);
    if (!woken.ok) return woken;
    // What nobody reads along is kept where it is long, unless it ends with the call.
    const isKept = read === 'bounded' && this.#parts.row.maybe?.facts.ephemeral === false;
    return accept(this.#parts, input, {
      arguments: { text, sha256 },
      relay: isKept ? 'kept' : read,
      storing: ({ executionId }) => this.#parts.events.wantsCallback(executionId, input.callback ?? null),
    });
  }

  async #runInner(input: ExecuteInput): Promise<Outcome<Execution>> {
    const { executions } = this.#parts;
    const known = input.executionId === undefined ? undefined : executions.find(input.executionId);
    if (known !== undefined) return executions.wait(known);
    const accepted = await this.#accept(input, 'bounded');
    return accepted.ok ? executions.wait(accepted.value) : accepted;
  }

  async beginProgram(input: ExecuteInput, facts: ProgramFacts): Promise<Outcome<Program>> {
    return beginProgram(this.#parts, input, facts);
  }

  async program(caller: Caller, programId: string): Promise<Outcome<Program>> {
    return programOf(this.#parts, caller, programId);
  }

  async waitProgram(caller: Caller, programId: string): Promise<Outcome<Program>> {
    return waitProgram(this.#parts, caller, programId);
  }

  async answerCalls(caller: Caller, programId: string, results: ToolResult[]): Promise<Outcome<null>> {
    return answerCalls(this.#parts, caller, programId, results);
  }

  async approvalDecided(
    caller: Caller,
    executionId: string,
    decision: ApprovalDecision,
  ): Promise<Outcome<null>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    this.#parts.programs.decided(executionId, decision);
    return success(null);
  }

  async beginEdgeCall(caller: Caller, call: EdgeCall): Promise<Outcome<Execution | null>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    return beginEdgeCall(this.#parts, call, { isDetached: false });
  }

  async makeEdgeCall(caller: Caller, call: DetachedEdgeCall): Promise<Outcome<Execution>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    return this.#parts.detached.make(call);
  }

  async endEdgeCall(caller: Caller, execution: Execution): Promise<Outcome<Envelope | null>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    return success(await this.#parts.edgeCalls.end(execution));
  }

  async edgeCallProgressed(
    caller: Caller,
    executionId: string,
    progress: EdgeProgress,
  ): Promise<Outcome<null>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    this.#parts.edgeCalls.progressed(executionId, progress);
    return success(null);
  }

  async waitCall(caller: Caller, executionId: string, waitMs: number): Promise<Outcome<AwaitedCall>> {
    return waitCall(this.#parts, caller, { executionId, waitMs });
  }

  async listExecutions(caller: Caller, page: ExecutionQuery): Promise<Outcome<ExecutionPage>> {
    return list(this.#parts, caller, page);
  }

  async getExecution(
    caller: Caller,
    executionId: string,
    encoding?: 'utf-8' | 'base64',
  ): Promise<Outcome<Execution>> {
    return getExecution(this.#parts, caller, { executionId, encoding });
  }

  async recall(caller: Caller, executionId: string, waitMs: number): Promise<Outcome<Execution>> {
    return recall(this.#parts, caller, { executionId, waitMs });
  }

  async outputExtent(
    caller: Caller,
    executionId: string,
    stream: StreamName,
  ): Promise<Outcome<OutputExtent>> {
    return extentFor(this.#parts, caller, { executionId, stream });
  }

  async outputAt(
    caller: Caller,
    executionId: string,
    place: { stream: StreamName; at: number },
  ): Promise<Outcome<OutputAt>> {
    return pieceFor(this.#parts, caller, { executionId, ...place });
  }

  async toolOf(caller: Caller, executionId: string): Promise<Outcome<string>> {
    const found = find(this.#parts, caller, executionId);
    return found.ok ? success(found.value.tool) : found;
  }

  async receipt(caller: Caller, executionId: string): Promise<Outcome<Envelope>> {
    return receiptOf(this.#parts, caller, executionId);
  }

  async receipts(caller: Caller, page: ReceiptPage): Promise<Outcome<ReceiptExport>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    return receiptExport(this.#parts, this.#configuration ?? (await configurationOf(this.env)), page);
  }

  async stdin(caller: Caller, executionId: string, bytes: Uint8Array, eof: boolean): Promise<Outcome<null>> {
    const found = find(this.#parts, caller, executionId);
    if (!found.ok) return found;
    return this.#awake(() => this.#parts.dispatch.stdin(found.value, bytes, eof));
  }

  async interrupt(
    caller: Caller,
    executionId: string | null,
  ): Promise<Outcome<{ execution_id: string | null }>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    if (executionId !== null && this.#parts.detached.stop(executionId)) {
      return success({ execution_id: executionId });
    }
    return interruptIn(this.#parts, executionId);
  }

  async pause(caller: Caller): Promise<Outcome<Session>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    const paused = await this.#parts.pausing.pause();
    return paused.ok ? success(viewOf(this.#parts)) : paused;
  }

  async resume(caller: Caller, { rescue, rescue_image }: Resume = {}): Promise<Outcome<Session>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    const rescued =
      rescue === undefined ? success(null) : await rescueSession(this.#parts, this.env, rescue_image);
    if (!rescued.ok) return rescued;
    const resumed = await this.#awake(() => this.#parts.pausing.resume());
    return resumed.ok ? success(viewOf(this.#parts)) : resumed;
  }

  async suspend(caller: Caller): Promise<Outcome<Session>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    const suspended = await this.#parts.suspension.suspend();
    return suspended.ok ? success(viewOf(this.#parts)) : suspended;
  }

  async migrate(caller: Caller): Promise<Outcome<Session>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    const moved = await migrateSession(this.#parts, this.env);
    return moved.ok ? success(viewOf(this.#parts)) : moved;
  }

  async rollBack(caller: Caller, to: Rollback): Promise<Outcome<Session>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    const found = await rollbackTarget(this.#parts, this.env, { caller, to });
    if (!found.ok) return found;
    const back = await rollBack(this.#parts, found.value);
    return back.ok ? success(viewOf(this.#parts)) : back;
  }

  async snapshot(caller: Caller, wish: SnapshotWish): Promise<Outcome<SnapshotFacts>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    return this.#awake(() => this.#parts.suspension.snapshot(wish));
  }

  async fork(caller: Caller): Promise<Outcome<ForkPoint>> {
    if (this.#parts.row.ownedBy(caller) === undefined) return notFound();
    return this.#awake(() => this.#parts.suspension.fork());
  }

  async holds(snapshotId: string): Promise<boolean> {
    return isHeld(this.#parts, snapshotId);
  }

  async keeps(snapshotId: string): Promise<SnapshotFacts | null> {
    return keptSnapshot(this.#parts, snapshotId);
  }

  /** For calls that need a sandbox: a suspended session is woken first. */
  async #awake<T>(work: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
    const woken = await this.#parts.waking.wake();
    return woken.ok ? work() : woken;
  }

  async attachRefused(notice: HostNotice & { code: ErrorCode; detail: string }): Promise<void> {
    if (this.#parts.row.maybe !== undefined) this.#parts.sandbox.refused(notice);
  }

  async sandboxDestroyed(notice: HostNotice): Promise<void> {
    const record = this.#parts.row.maybe;
    if (record?.facts.hostId !== notice.hostId || record.epoch !== notice.epoch) return;
    if (!this.#parts.row.isLive) await confirmGone(this.#parts);
  }

  async hostLost(notice: { hostId: string; isRevoked?: boolean }): Promise<void> {
    if (this.#parts.row.maybe?.facts.hostId !== notice.hostId) return;
    if (notice.isRevoked === true) this.#parts.link.cut();
    await loseHost(this.#parts, this.env);
  }

  async hearTerms(terms: AccountTerms): Promise<void> {
    if (this.#parts.row.isLive) this.#parts.account.hear(terms);
  }

  async noteApproval(eventId: string, facts: ApprovalFacts): Promise<void> {
    if (this.#parts.row.isLive) this.#parts.events.record(facts, { id: eventId });
  }

  async noteUnmade(eventId: string, execution: Execution, callback: SealedCallback | null): Promise<void> {
    noteUnmade(this.#parts, eventId, { execution, callback });
  }

  async eventsTaken(eventIds: string[]): Promise<void> {
    this.#parts.events.taken(eventIds);
  }

  async hostDraining({ hostId }: { hostId: string }): Promise<void> {
    if (this.#parts.row.maybe?.facts.hostId === hostId) await leaveHost(this.#parts, this.env);
  }

  /** Streams and sockets; only this Worker can send these requests. */
  override async fetch(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url);
    if (pathname === INTERNAL_PATHS.link) return this.#acceptLink(request);
    if (pathname === INTERNAL_PATHS.files) return serveTransfer(this.#parts, request);
    if (pathname === INTERNAL_PATHS.terminal) return openTerminal(this.#parts, request);
    if (pathname === INTERNAL_PATHS.sessionEvents) return answerOf(openSessionEvents(this.#parts, request));
    const streamed =
      pathname === INTERNAL_PATHS.execute
        ? await this.#executeStream(request)
        : openExecutionEvents(this.#parts, request);
    return answerOf(streamed);
  }

  #acceptLink(request: Request): Response {
    const identity = readIdentity(request, SessionLinkIdentitySchema);
    return identity === undefined
      ? answerOf(failure('protocol_violation', 'the link carries no identity'))
      : this.#parts.link.accept(identity);
  }

  async #executeStream(request: Request): Promise<Outcome<Response>> {
    const input = await readExecuteInput(request);
    if (!input.ok) return input;
    const fault = readersFault(this.#parts);
    if (fault !== undefined) return fault;
    const accepted = await this.#accept(input.value, 'full');
    if (!accepted.ok) return accepted;
    return success(streamOf(this.#parts, accepted.value, { cursor: undefined, encoding: undefined }));
  }

  override async webSocketMessage(socket: WebSocket, message: string | ArrayBuffer): Promise<void> {
    await this.#parts.link.receive(socket, message);
  }

  override async webSocketClose(socket: WebSocket): Promise<void> {
    this.#parts.link.closed(socket);
  }

  override async webSocketError(socket: WebSocket): Promise<void> {
    this.#parts.link.closed(socket);
  }

  override async alarm(): Promise<void> {
    this.#parts.clock.rang();
    await ring(this.#parts, this.env);
  }
}
