/**
 * The programs of this session: each call is written before anything is done for it, so that it is done at most once,
 * and its answer is written before it is sent. What an eviction or a restart finds half done goes on from the rows.
 */
import { APPROVAL_LIFETIME_MS } from '../../../../shared/approval.ts';
import { type CallError, MAX_CALL_ARGUMENTS_BYTES, type ToolResult } from '../../../../shared/code-mode.ts';
import { utf8 } from '../../../../shared/encoding.ts';
import { type Outcome, success } from '../../../../shared/errors.ts';
import type { Execution, StreamEvent } from '../../../../shared/execution.ts';
import { newId } from '../../../../shared/ids.ts';
import { isTerminal, type TerminalStatus } from '../../../../shared/lifecycle.ts';
import { HOST_ANSWER_GRACE_MS } from '../../../../shared/limits.ts';
import type { CarriedExecution } from '../../../../shared/snapshot.ts';
import type { Configuration } from '../../../configuration.ts';
import type { Env } from '../../../env.ts';
import type { TenantPrincipal } from '../../../identity/principal.ts';
import { errorOf, type InnerCallPlan, planInnerCall } from '../../../programs/inner-call.ts';
import { type Given, givenBy } from '../../../tools/given.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { EdgeReceipts } from '../edge-receipts/edge-receipts.ts';
import type { Executions } from '../executions.ts';
import type { ProgramFrame } from '../intake.ts';
import type { EventLogs } from '../logs.ts';
import type { ApprovalDecision, ExecuteInput } from '../port.ts';
import type { ExecutionRecord } from '../records.ts';
import type { SessionRow } from '../session-row.ts';
import { ProgramAdmission } from './admission.ts';
import { notAllowed, ProgramApprovals } from './approvals.ts';
import { Attendance } from './attendance.ts';
import { chargeCall, chargeResult, spentBefore } from './budget.ts';
import { CallRecords } from './call-records.ts';
import { codeExecution, givenByCode } from './code-call.ts';
import { AnswerDelivery, type SendAnswer } from './delivery.ts';
import { type ForkedCall, type ForkedProgram, forkedProgram } from './forked.ts';
import { answerText, givenAnswers } from './given-answers.ts';
import type { ProgramFacts } from './port.ts';
import { type CallRow, type ProgramRow, ProgramStore, programOfCall } from './store.ts';
import { argumentsOf, callIdOfExecution, executionIdOfCall } from './view.ts';

type Frame<Type extends ProgramFrame['type']> = Extract<ProgramFrame, { type: Type }>;

/** A program that goes on calling though its budget is used up is stopped after this many refusals. */
const MAX_CALLS_BEYOND_BUDGET = 100;
/** Each may have a megabyte of arguments. */
const MAX_EVENTS_AT_ONCE = 4;
type ToolCallEvent = Extract<StreamEvent, { event: 'tool_call' }>;

export interface ProgramsPort {
  /** The clock of the program stands still, or goes on. */
  clockChanged(record: ExecutionRecord): void;
  /** The time to look at calls may have changed. */
  look(): void;
  stop(record: ExecutionRecord): void;
  /** Whether anything can run beside this program. */
  runsBeside(record: ExecutionRecord): boolean;
  /** Runs a call of a program beside it; resolves at its end. One that is known by its id is not begun again. */
  runInner(input: ExecuteInput): Promise<Outcome<Execution>>;
  stopInner(executionId: string): void;
  /** There is an answer for a program: a session that is suspended is woken for it. */
  answered(): void;
  /** A call waits for the caller: belongs to the write of that. */
  asked(record: ExecutionRecord, call: { id: string; tool_name: string }): void;
}

export class Programs {
  readonly store: ProgramStore;
  readonly records: CallRecords;
  readonly #env: Env;
  readonly #configuration: Configuration;
  readonly #row: SessionRow;
  readonly #executions: Executions;
  readonly #logs: EventLogs;
  readonly #port: ProgramsPort;
  readonly #delivery: AnswerDelivery;
  readonly #attendance: Attendance;
  readonly #admission: ProgramAdmission;
  readonly #approvals: ProgramApprovals;
  /** Calls of the gateway that are under way, by row. */
  readonly #underWay = new Map<number, AbortController>();
  /** How often each was refused a call because it had used up what it may, since this object is in memory. */
  readonly #refusals = new Map<number, number>();
  /** Numbers of those that have not ended: of other executions nothing is asked here. */
  readonly #numbers: Set<number>;

  constructor(parts: {
    context: DurableObjectState;
    env: Env;
    configuration: Configuration;
    row: SessionRow;
    executions: Executions;
    logs: EventLogs;
    receipts: EdgeReceipts;
    send: SendAnswer;
    port: ProgramsPort;
  }) {
    this.store = new ProgramStore(parts.context);
    this.records = new CallRecords(this.store, parts);
    this.#env = parts.env;
    this.#configuration = parts.configuration;
    this.#row = parts.row;
    this.#executions = parts.executions;
    this.#logs = parts.logs;
    this.#port = parts.port;
    this.#delivery = new AnswerDelivery(this.store, parts.send);
    this.#attendance = new Attendance(this.store);
    this.#admission = new ProgramAdmission(parts.env);
    this.#approvals = new ProgramApprovals(parts.env, parts.row);
    const open = parts.executions.open.map(({ n }) => n);
    this.#numbers = new Set(open.filter((n) => this.store.find(n) !== undefined));
  }

  /** In the write of its execution's row, before that is sent: no call of it can come earlier. */
  begin({ n }: ExecutionRecord, facts: ProgramFacts): void {
    this.store.insert(n, facts);
    this.#numbers.add(n);
  }

  /** Those of these executions that wait for tools, as they stood at a checkpoint. */
  forked(executions: readonly CarriedExecution[]): ForkedProgram[] {
    return executions.flatMap((carried) => {
      const record = this.#executions.find(carried.execution_id);
      return record === undefined ? [] : (forkedProgram(this.store, record, carried) ?? []);
    });
  }

  /** A program of the session that this one was forked from goes on here: its calls wait for answers of their own. */
  inherit(record: ExecutionRecord, { facts, used, leftMs, calls }: ForkedProgram): void {
    this.begin(record, facts);
    this.store.use(record.n, used);
    this.store.setLeft(record.n, leftMs);
    const program = this.store.find(record.n);
    if (program === undefined) return;
    for (const call of calls) this.#inheritCall(record, program, call);
  }

  #inheritCall(
    record: ExecutionRecord,
    program: ProgramRow,
    { call, name, arguments: text, argumentsBytes, pending, mayRepeat }: ForkedCall,
  ): void {
    const fresh = newCall({ name, text, argumentsBytes });
    if (pending !== null && text !== null) {
      const nowMs = Date.now();
      const row = this.store.insertCall(record.n, call, {
        ...fresh,
        status: 'pending',
        shown: this.store.lastShown(record.n) + 1,
        waitsUntilMs: nowMs + program.facts.limits.wait_timeout_s * 1_000,
        made: pending.made === null ? null : { ...pending.made, startedAtMs: nowMs },
      });
      this.#asks(record, row);
      return;
    }
    // It was charged in the program that was forked.
    const row = this.store.insertCall(record.n, call, { ...fresh, status: 'running', mayRepeat });
    if (mayRepeat && text !== null) void this.#perform(record, program, row);
    else this.#answer(record, row, { status: 'unknown', error: FORKED_MEANWHILE });
  }

  #asks(record: ExecutionRecord, row: CallRow): void {
    this.#port.asked(record, { id: row.callId, tool_name: row.name });
    this.#logs.of(record).wake();
    this.#attendance.changed(record.n);
    this.#port.look();
  }

  /** A frame of the host; false for one that changes nothing. */
  take(frame: ProgramFrame, payload: Uint8Array): boolean {
    switch (frame.type) {
      case 'tool_call':
        return this.#takeCall(frame, payload);
      case 'tool_result_taken':
        return this.#taken(frame);
      case 'waiting':
      case 'continued':
        return this.#clock(frame);
    }
  }

  /** Memory is new: what was begun and not ended is begun again only where that does no harm. */
  recover(): void {
    for (const { record, program } of this.#open()) {
      for (const row of this.store.callsIn(record.n, ['awaiting_approval'])) {
        void this.#askApproval(record, program, row);
      }
      for (const row of this.store.callsIn(record.n, ['received', 'running'])) {
        const isToPerform = row.status === 'received' || row.mayRepeat || row.made?.by === 'session';
        if (isToPerform) void this.#perform(record, program, row);
        else this.#answer(record, row, { status: 'unknown', error: END_NOT_SEEN });
      }
    }
  }

  linkUp(): void {
    this.#delivery.linkUp();
    for (const { record } of this.#open()) this.#delivery.pump(record);
  }

  /** A piece of a call, each taken once however often it comes. False where it is of no use. */
  #takeCall(frame: Frame<'tool_call'>, payload: Uint8Array): boolean {
    const record = this.#running(frame.execution_id);
    const program = record === undefined ? undefined : this.store.find(record.n);
    if (record === undefined || program === undefined) return false;
    const { call, name, offset, last } = frame;
    // They come in their order, so only one is ever there in part. What is missing between them the host has refused.
    if (call <= this.store.lastCall(record.n)) return false;
    if (offset === 0) this.store.dropPieces(record.n);
    const keptBytes = offset === 0 ? 0 : this.store.pieceBytes(record.n, call);
    if (offset !== keptBytes || offset + payload.length > MAX_CALL_ARGUMENTS_BYTES) return false;
    if (!last || offset > 0) this.store.insertPiece(record.n, call, { offset, bytes: payload });
    if (!last) return true;
    const bytes = offset === 0 ? payload : this.store.takePieces(record.n, call);
    this.#received(record, program, { call, name, bytes });
    return true;
  }

  #received(
    record: ExecutionRecord,
    program: ProgramRow,
    { call, name, bytes }: { call: number; name: string; bytes: Uint8Array },
  ): void {
    const spent = spentBefore(program, { call, bytes: bytes.length });
    // A program that goes on calling when it may not leaves no more than the trace of it.
    const text = spent === undefined ? new TextDecoder().decode(bytes) : null;
    const row = this.store.insertCall(record.n, call, newCall({ name, text, argumentsBytes: bytes.length }));
    this.store.use(record.n, { calls: 1, writes: 0, bytes: bytes.length });
    if (spent === undefined) void this.#perform(record, program, row);
    else this.#beyondBudget(record, row, spent);
    if (program.calls >= program.facts.limits.calls + MAX_CALLS_BEYOND_BUDGET) this.#port.stop(record);
  }

  #beyondBudget(record: ExecutionRecord, row: CallRow, error: CallError): void {
    this.#answer(record, row, { status: 'refused', error });
    const refusals = (this.#refusals.get(record.n) ?? 0) + 1;
    this.#refusals.set(record.n, refusals);
    if (refusals > MAX_CALLS_BEYOND_BUDGET) this.#port.stop(record);
  }

  async #perform(record: ExecutionRecord, program: ProgramRow, row: CallRow): Promise<void> {
    try {
      const plan = await this.#plan(program, row);
      const admitted =
        plan.by !== 'nobody' && plan.by !== 'caller'
          ? await this.#admission.admit(record.n, this.#owner(program))
          : success(null);
      // Meanwhile the program may have ended.
      if (isTerminal(record.status)) return;
      if (plan.by === 'nobody') {
        this.#answer(record, row, { status: 'refused', error: plan.error });
        return;
      }
      if (!admitted.ok) {
        this.#answer(record, row, { status: 'refused', error: errorOf(admitted) });
        return;
      }
      const spent = chargeCall(this.store, record.n, { row, writes: plan.writes });
      if (spent !== undefined) this.#beyondBudget(record, row, spent);
      else if (plan.by === 'caller') this.#ask(record, program, row, plan);
      else if (plan.by === 'session') await this.#run(record, row, plan);
      else if (plan.by === 'approver') await this.#awaitApproval(record, program, row, plan);
      else await this.#call(record, row, plan);
    } catch (problem: unknown) {
      logWarning('inner_call_failed', { detail: messageOf(problem) });
      if (isTerminal(record.status)) return;
      const error = { code: 'internal', message: 'the gateway failed to make the call' };
      this.#answer(record, row, { status: row.status === 'running' ? 'unknown' : 'refused', error });
    }
  }

  #owner({ facts: { tokenId, issuedAtMs, apiKeyId } }: ProgramRow) {
    const { tenant, subject } = this.#row.record.facts;
    return { tenant, subject, tokenId, issuedAtMs, apiKeyId };
  }

  #plan({ facts }: ProgramRow, row: CallRow): Promise<InnerCallPlan> {
    const { tenant, subject } = this.#row.record.facts;
    const principal: TenantPrincipal = {
      kind: 'tenant',
      tenant,
      subject,
      client: facts.client,
      scopes: new Set(facts.scopes),
      tokenId: facts.tokenId,
      boundTo: null,
      issuedAtMs: facts.issuedAtMs,
      apiKeyId: facts.apiKeyId,
      expiresAtMs: Number.POSITIVE_INFINITY,
    };
    const context = {
      env: this.#env,
      configuration: this.#configuration,
      principal,
      receivedMs: row.createdAtMs,
    };
    const approved = row.approval?.given === true ? row.approval.tool.digest : null;
    const call = { name: row.name, arguments: row.arguments ?? '', approved };
    return planInnerCall(context, call, facts.tools);
  }

  /** Written before anybody is asked; asked again by an object that starts anew. */
  async #awaitApproval(
    record: ExecutionRecord,
    program: ProgramRow,
    row: CallRow,
    { arguments: args, identity, timeoutMs }: Extract<InnerCallPlan, { by: 'approver' }>,
  ): Promise<void> {
    this.store.patchCall(row, {
      status: 'awaiting_approval',
      arguments: JSON.stringify(args),
      approval: { tool: identity, timeoutMs, given: false },
      waitsUntilMs: Date.now() + Math.min(APPROVAL_LIFETIME_MS, program.facts.limits.wait_timeout_s * 1_000),
    });
    this.#attendance.changed(record.n);
    this.#port.look();
    await this.#askApproval(record, program, row);
  }

  async #askApproval(record: ExecutionRecord, program: ProgramRow, row: CallRow): Promise<void> {
    const asked = await this.#approvals.ask(record, program, row);
    // Meanwhile the program may have ended.
    if (this.store.callWithId(row.callId)?.status !== 'awaiting_approval') return;
    if (!asked.ok) this.#answer(record, row, { status: 'refused', error: errorOf(asked) });
    const approval = asked.ok ? asked.value.approval : undefined;
    if (approval === undefined || approval.status === 'waiting') return;
    this.decided(executionIdOfCall(row.callId), { status: approval.status, reason: approval.reason });
  }

  /** As often as wanted: what is decided already stays so. */
  decided(executionId: string, decision: ApprovalDecision): void {
    const row = this.store.callWithId(callIdOfExecution(executionId));
    if (row?.status !== 'awaiting_approval') return;
    const found = this.#open().find(({ record }) => record.n === programOfCall(row));
    if (found === undefined) return;
    if (decision.status !== 'approved' || row.approval === null) {
      this.#answer(found.record, row, { status: 'refused', error: notAllowed(decision) });
      return;
    }
    const approval = { ...row.approval, given: true };
    this.store.patchCall(row, { status: 'received', approval, waitsUntilMs: null });
    void this.#perform(found.record, found.program, row);
  }

  #ask(
    record: ExecutionRecord,
    { facts }: ProgramRow,
    row: CallRow,
    { arguments: args, argsSha256, toolVersion }: Extract<InnerCallPlan, { by: 'caller' }>,
  ): void {
    this.store.patchCall(row, {
      status: 'pending',
      arguments: JSON.stringify(args),
      made: { by: 'caller', toolVersion, argsSha256, timeoutMs: null, startedAtMs: Date.now() },
      shown: this.store.lastShown(record.n) + 1,
      waitsUntilMs: Date.now() + facts.limits.wait_timeout_s * 1_000,
    });
    this.#asks(record, row);
  }

  async #call(
    record: ExecutionRecord,
    row: CallRow,
    { performance, finish, mayRepeat, argsSha256, toolVersion }: Extract<InnerCallPlan, { by: 'gateway' }>,
  ): Promise<void> {
    const { timeoutMs } = performance;
    const made = { by: 'edge' as const, toolVersion, argsSha256, timeoutMs, startedAtMs: Date.now() };
    this.store.patchCall(row, { status: 'running', mayRepeat, made });
    const { sessionId } = this.#row.record.facts;
    const ids = { sessionId, executionId: executionIdOfCall(row.callId) };
    const controller = new AbortController();
    this.#underWay.set(row.id, controller);
    const execution = finish(await performance.run(ids, controller.signal));
    this.#underWay.delete(row.id);
    const given = givenBy(execution);
    const outcome = isTerminal(execution.status) ? execution.status : 'unknown';
    this.#answer(record, row, { status: 'error' in given ? 'failed' : 'succeeded', outcome, ...given });
  }

  /** As an execution of its own, by the id of the call: asked for again it is the same. */
  async #run(
    record: ExecutionRecord,
    row: CallRow,
    { call, finish, argsSha256, toolVersion }: Extract<InnerCallPlan, { by: 'session' }>,
  ): Promise<void> {
    if (!this.#port.runsBeside(record)) {
      this.#answer(record, row, { status: 'refused', error: NOT_BESIDE });
      return;
    }
    const { timeoutMs } = call;
    const made = { by: 'session' as const, toolVersion, argsSha256, timeoutMs, startedAtMs: Date.now() };
    this.store.patchCall(row, { status: 'running', made });
    const executionId = executionIdOfCall(row.callId);
    const controller = new AbortController();
    this.#underWay.set(row.id, controller);
    controller.signal.addEventListener('abort', () => this.#port.stopInner(executionId));
    const ran = await this.#port.runInner(codeExecution(record, { call, executionId, row: this.#row }));
    this.#underWay.delete(row.id);
    const given = ran.ok ? givenByCode(ran.value, finish) : { error: errorOf(ran) };
    this.#answer(record, row, { status: 'error' in given ? 'failed' : 'succeeded', ...given });
  }

  /** Answers of the caller. */
  answer(record: ExecutionRecord, results: readonly ToolResult[]): Outcome<null> {
    const given = givenAnswers(this.store, record.n, results);
    if (!given.ok) return given;
    for (const { row, answer } of given.value) {
      this.#answer(record, row, { status: 'error' in answer ? 'failed' : 'succeeded', ...answer });
    }
    if (given.value.length > 0) this.#row.patch({ lastActivityAtMs: Date.now() });
    return success(null);
  }

  /** The one way to an end of a call: written with what its receipt will say, then sent. */
  #answer(record: ExecutionRecord, row: CallRow, end: CallEnd & Given): void {
    const { status, outcome = OUTCOMES[status], ...answer } = end;
    const resultBytes = 'result' in answer ? utf8(JSON.stringify(answer.result) ?? 'null').length : 0;
    const fault = chargeResult(this.store, record.n, resultBytes);
    const given = fault === undefined ? answer : { error: fault };
    this.store.patchCall(row, {
      status: fault === undefined ? status : 'failed',
      // The stream tells those again that the caller executes.
      arguments: row.shown === null ? null : row.arguments,
      // Nobody takes it any more where the program has ended.
      answer: isTerminal(record.status) ? null : answerText(row, given),
      error: 'error' in given ? given.error : null,
      resultBytes,
      finishedAtMs: Date.now(),
      waitsUntilMs: null,
    });
    this.records.ended(record, row, { status: outcome, given });
    this.#attendance.changed(record.n);
    if (isTerminal(record.status)) return;
    this.#delivery.pump(record);
    this.#port.answered();
  }

  #taken(frame: Frame<'tool_result_taken'>): boolean {
    const record = this.#running(frame.execution_id);
    const row = record === undefined ? undefined : this.store.call(record.n, frame.call);
    if (record === undefined || row === undefined) return false;
    this.#delivery.taken(record, row);
    return true;
  }

  /** The host stopped or started the program's clock: so does this object its own, and time that is gone never comes back. */
  #clock(frame: Frame<'waiting' | 'continued'>): boolean {
    const waits = frame.type === 'waiting';
    const known = this.#running(frame.execution_id);
    if (known === undefined) return false;
    const leftMs = Math.min(frame.left_ms, this.store.leftMs(known.n) ?? known.timeoutMs);
    const deadlineAtMs = Date.now() + leftMs + HOST_ANSWER_GRACE_MS;
    const record = this.#executions.moveClock(frame.execution_id, {
      status: waits ? 'waiting' : 'running',
      // Said again while it runs, it moves nothing later.
      deadlineAtMs: waits
        ? null
        : Math.min(
            deadlineAtMs,
            known.status === 'running' ? (known.deadlineAtMs ?? deadlineAtMs) : deadlineAtMs,
          ),
    });
    if (record === undefined) return false;
    this.store.setLeft(record.n, leftMs);
    if (waits) this.#row.patch({ lastActivityAtMs: Date.now() });
    this.#port.clockChanged(record);
    this.#attendance.changed(record.n);
    return true;
  }

  /** Events of the calls that the caller executes, behind the first `after` of them. */
  eventsAfter({ n }: ExecutionRecord, after: number): ToolCallEvent[] {
    return this.store.shown(n, after, MAX_EVENTS_AT_ONCE).map((row) => ({
      event: 'tool_call',
      id: row.callId,
      tool_name: row.name,
      arguments: argumentsOf(row),
    }));
  }

  /** Calls that nobody executes any more are void; what was kept for the program's sake goes. */
  ended(record: ExecutionRecord): void {
    if (!this.#numbers.delete(record.n)) return;
    this.#refusals.delete(record.n);
    this.#admission.ended(record.n);
    const open = this.store.callsIn(record.n, ['received', 'awaiting_approval', 'pending']);
    for (const row of open) {
      if (row.status === 'awaiting_approval') this.#approvals.giveUp(row);
      this.store.patchCall(row, { status: 'void', finishedAtMs: Date.now(), waitsUntilMs: null });
    }
    for (const { id } of this.store.callsIn(record.n, ['running'])) this.#underWay.get(id)?.abort();
    this.#delivery.ended(this.store.untaken(record.n));
    this.#executions.addContent(record, this.store.letGo(record.n));
    this.#attendance.changed(record.n);
  }

  /** From the alarm: a call that its caller left without an answer fails in the program. */
  check(nowMs: number): void {
    for (const { record, row } of this.#pending()) {
      if (row.waitsUntilMs === null || nowMs < row.waitsUntilMs) continue;
      if (row.status === 'awaiting_approval') {
        this.#approvals.giveUp(row);
        const error = notAllowed({ status: 'expired', reason: null });
        this.#answer(record, row, { status: 'refused', error });
        continue;
      }
      const error = { code: 'wait_timeout', message: 'nobody answered the call in time' };
      this.#answer(record, row, { status: 'failed', outcome: 'timeout', error });
    }
  }

  /** Bytes that are kept for programs that have not ended; of the others they are with their executions. */
  get openBytes(): number {
    const { open } = this.#executions;
    return open.reduce((sum, record) => sum + (this.#isOpen(record) ? this.store.keptBytes(record.n) : 0), 0);
  }

  nextMoment(): number | null {
    const moments = this.#pending().flatMap(({ row }) => row.waitsUntilMs ?? []);
    return moments.length === 0 ? null : Math.min(...moments);
  }

  /** Resolves when the program has ended, or waits for its caller. */
  wait(record: ExecutionRecord): Promise<void> {
    return this.#attendance.wait(record);
  }

  #running(executionId: string): ExecutionRecord | undefined {
    return this.#executions.open.find((record) => record.executionId === executionId && this.#isOpen(record));
  }

  #open(): { record: ExecutionRecord; program: ProgramRow }[] {
    return this.#executions.open.flatMap((record) => {
      const program = this.#isOpen(record) ? this.store.find(record.n) : undefined;
      return program === undefined ? [] : [{ record, program }];
    });
  }

  #isOpen({ n, status }: ExecutionRecord): boolean {
    return this.#numbers.has(n) && status !== 'queued';
  }

  #pending(): { record: ExecutionRecord; row: CallRow }[] {
    return this.#executions.open.flatMap((record) =>
      this.#isOpen(record)
        ? this.store.callsIn(record.n, ['pending', 'awaiting_approval']).map((row) => ({ record, row }))
        : [],
    );
  }
}

const NOT_BESIDE: CallError = {
  code: 'tool_unavailable',
  message: 'the tool runs in this session, in which nothing runs beside this program',
};

function newCall(call: { name: string; text: string | null; argumentsBytes: number }): Omit<CallRow, 'id'> {
  const { name, text, argumentsBytes } = call;
  return {
    callId: newId('tcl'),
    name,
    arguments: text,
    argumentsBytes,
    status: 'received',
    shown: null,
    mayRepeat: false,
    answer: null,
    resultBytes: null,
    error: null,
    isTaken: false,
    createdAtMs: Date.now(),
    finishedAtMs: null,
    waitsUntilMs: null,
    made: null,
    approval: null,
  };
}

const FORKED_MEANWHILE: CallError = {
  code: 'unknown',
  message: 'the session was forked during the call, which may have had its effect',
};

const END_NOT_SEEN: CallError = {
  code: 'unknown',
  message: 'the gateway restarted during the call, which may have had its effect',
};

interface CallEnd {
  status: 'succeeded' | 'failed' | 'refused' | 'unknown';
  /** How its execution ended, where that says more. */
  outcome?: TerminalStatus;
}

/** A call that is made again after a restart may be refused then: how the first time ended is unknown. */
const OUTCOMES: Record<CallEnd['status'], TerminalStatus> = {
  succeeded: 'succeeded',
  failed: 'failed',
  refused: 'unknown',
  unknown: 'unknown',
};
