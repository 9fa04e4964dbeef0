/**
 * The calls of programs, each from its arrival to its answer: written before anything is done for it, so that it is done
 * at most once, and its answer is written before it is sent.
 */
import { APPROVAL_LIFETIME_MS } from '../../../../shared/approval.ts';
import type { CallError, ToolResult } from '../../../../shared/code-mode.ts';
import { utf8 } from '../../../../shared/encoding.ts';
import { type Outcome, success } from '../../../../shared/errors.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import type { Configuration } from '../../../configuration.ts';
import type { Env } from '../../../env.ts';
import { errorOf, type InnerCallPlan } from '../../../programs/inner-call.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { ApprovalDecision } from '../port.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import { ProgramAdmission } from './admission.ts';
import { notAllowed, ProgramApprovals } from './approvals.ts';
import { chargeCall, chargeResult, spentBefore } from './budget.ts';
import { type CallEnd, OUTCOMES } from './call-end.ts';
import type { CallRecords } from './call-records.ts';
import type { ForkedCall } from './forked.ts';
import { answerText, givenAnswers } from './given-answers.ts';
import { newCall } from './new-call.ts';
import type { OpenProgram, OpenPrograms } from './open-programs.ts';
import { Performing, type PerformingPort } from './performing.ts';
import { Planning } from './planning.ts';
import { type CallRow, type ProgramRow, type ProgramStore, programOfCall } from './store.ts';
import { callIdOfExecution, executionIdOfCall } from './view.ts';

/** A program that goes on calling though its budget is used up is stopped after this many refusals. */
const MAX_CALLS_BEYOND_BUDGET = 100;

export interface InnerCallsPort extends PerformingPort {
  /** A call came to wait for somebody, or waits no more. */
  changed(record: ExecutionRecord): void;
  /** A call waits for the caller: belongs to the write of that. */
  asked(record: ExecutionRecord, row: CallRow): void;
  /** The time to look at calls may have changed. */
  look(): void;
  /** There is an answer for the program, which has not ended. */
  answered(record: ExecutionRecord): void;
  stop(record: ExecutionRecord): void;
}

export class InnerCalls {
  readonly #store: ProgramStore;
  readonly #records: CallRecords;
  readonly #row: SessionRow;
  readonly #open: OpenPrograms;
  readonly #port: InnerCallsPort;
  readonly #planning: Planning;
  readonly #admission: ProgramAdmission;
  readonly #approvals: ProgramApprovals;
  readonly #performing: Performing;
  /** How often each was refused a call because it had used up what it may, since this object is in memory. */
  readonly #refusals = new Map<number, number>();

  constructor(parts: {
    env: Env;
    configuration: Configuration;
    row: SessionRow;
    store: ProgramStore;
    records: CallRecords;
    open: OpenPrograms;
    port: InnerCallsPort;
  }) {
    this.#store = parts.store;
    this.#records = parts.records;
    this.#row = parts.row;
    this.#open = parts.open;
    this.#port = parts.port;
    this.#planning = new Planning(parts);
    this.#admission = new ProgramAdmission(parts.env);
    this.#approvals = new ProgramApprovals(parts.env, parts.row);
    this.#performing = new Performing(parts.store, parts.row, parts.port);
  }

  /** It is whole. */
  received(
    { record, program }: OpenProgram,
    { call, name, bytes }: { call: number; name: string; bytes: Uint8Array },
  ): void {
    const spent = spentBefore(program, { call, bytes: bytes.length });
    // A program that goes on calling when it may not leaves no more than the trace of it.
    const text = spent === undefined ? new TextDecoder().decode(bytes) : null;
    const row = this.#store.insertCall(record.n, call, newCall({ name, text, argumentsBytes: bytes.length }));
    this.#store.use(record.n, { calls: 1, writes: 0, bytes: bytes.length });
    if (spent === undefined) void this.#perform(record, program, row);
    else this.#beyondBudget(record, row, spent);
    if (program.calls >= program.facts.limits.calls + MAX_CALLS_BEYOND_BUDGET) this.#port.stop(record);
  }

  #beyondBudget(record: ExecutionRecord, row: CallRow, error: CallError): void {
    this.#end(record, row, { status: 'refused', error });
    const refusals = (this.#refusals.get(record.n) ?? 0) + 1;
    this.#refusals.set(record.n, refusals);
    if (refusals > MAX_CALLS_BEYOND_BUDGET) this.#port.stop(record);
  }

  /** It was there already in the program that this one was forked from. */
  inherit(
    record: ExecutionRecord,
    program: ProgramRow,
    { call, name, arguments: text, argumentsBytes, pending, mayRepeat }: ForkedCall,
  ): void {
    const fresh = newCall({ name, text, argumentsBytes });
    if (pending !== null && text !== null) {
      const nowMs = Date.now();
      const row = this.#store.insertCall(record.n, call, {
        ...fresh,
        status: 'pending',
        shown: this.#store.lastShown(record.n) + 1,
        waitsUntilMs: nowMs + program.facts.limits.wait_timeout_s * 1_000,
        made: pending.made === null ? null : { ...pending.made, startedAtMs: nowMs },
      });
      this.#asks(record, row);
      return;
    }
    // It was charged in the program that was forked.
    const row = this.#store.insertCall(record.n, call, { ...fresh, status: 'running', mayRepeat });
    if (mayRepeat && text !== null) void this.#perform(record, program, row);
    else this.#end(record, row, { status: 'unknown', error: FORKED_MEANWHILE });
  }

  /** Memory is new: what was begun and not ended is begun again only where that does no harm. */
  recover({ record, program }: OpenProgram): void {
    for (const row of this.#store.callsIn(record.n, ['awaiting_approval'])) {
      void this.#askApproval(record, program, row);
    }
    for (const row of this.#store.callsIn(record.n, ['received', 'running'])) {
      const isToPerform = row.status === 'received' || row.mayRepeat || row.made?.by === 'session';
      if (isToPerform) void this.#perform(record, program, row);
      else this.#end(record, row, { status: 'unknown', error: END_NOT_SEEN });
    }
  }

  async #perform(record: ExecutionRecord, program: ProgramRow, row: CallRow): Promise<void> {
    try {
      const plan = await this.#planning.planOf(program, row);
      const admitted =
        plan.by !== 'nobody' && plan.by !== 'caller'
          ? await this.#admission.admit(record.n, this.#planning.ownerOf(program))
          : success(null);
      // Meanwhile the program may have ended.
      if (isTerminal(record.status)) return;
      if (plan.by === 'nobody') {
        this.#end(record, row, { status: 'refused', error: plan.error });
        return;
      }
      if (!admitted.ok) {
        this.#end(record, row, { status: 'refused', error: errorOf(admitted) });
        return;
      }
      const spent = chargeCall(this.#store, record.n, { row, writes: plan.writes });
      if (spent !== undefined) this.#beyondBudget(record, row, spent);
      else if (plan.by === 'caller') this.#ask(record, program, row, plan);
      else if (plan.by === 'session')
        this.#end(record, row, await this.#performing.bySession(record, row, plan));
      else if (plan.by === 'approver') await this.#awaitApproval(record, program, row, plan);
      else this.#end(record, row, await this.#performing.byGateway(record, row, plan));
    } catch (problem: unknown) {
      logWarning('inner_call_failed', { detail: messageOf(problem) });
      if (isTerminal(record.status)) return;
      const error = { code: 'internal', message: 'the gateway failed to make the call' };
      this.#end(record, row, { status: row.status === 'running' ? 'unknown' : 'refused', error });
    }
  }

  /** Written before anybody is asked; asked again by an object that starts anew. */
  async #awaitApproval(
    record: ExecutionRecord,
    program: ProgramRow,
    row: CallRow,
    { arguments: args, identity, timeoutMs }: Extract<InnerCallPlan, { by: 'approver' }>,
  ): Promise<void> {
    this.#store.patchCall(row, {
      status: 'awaiting_approval',
      arguments: JSON.stringify(args),
      approval: { tool: identity, timeoutMs, given: false },
      waitsUntilMs: Date.now() + Math.min(APPROVAL_LIFETIME_MS, program.facts.limits.wait_timeout_s * 1_000),
    });
    this.#port.changed(record);
    this.#port.look();
    await this.#askApproval(record, program, row);
  }

  async #askApproval(record: ExecutionRecord, program: ProgramRow, row: CallRow): Promise<void> {
    const asked = await this.#approvals.ask(record, program, row);
    // Meanwhile the program may have ended.
    if (this.#store.callWithId(row.callId)?.status !== 'awaiting_approval') return;
    if (!asked.ok) this.#end(record, row, { status: 'refused', error: errorOf(asked) });
    const approval = asked.ok ? asked.value.approval : undefined;
    if (approval === undefined || approval.status === 'waiting') return;
    this.decided(executionIdOfCall(row.callId), { status: approval.status, reason: approval.reason });
  }

  /** As often as wanted: what is decided already stays so. */
  decided(executionId: string, decision: ApprovalDecision): void {
    const row = this.#store.callWithId(callIdOfExecution(executionId));
    if (row?.status !== 'awaiting_approval') return;
    const found = this.#open.withNumber(programOfCall(row));
    if (found === undefined) return;
    if (decision.status !== 'approved' || row.approval === null) {
      this.#end(found.record, row, { status: 'refused', error: notAllowed(decision) });
      return;
    }
    const approval = { ...row.approval, given: true };
    this.#store.patchCall(row, { status: 'received', approval, waitsUntilMs: null });
    void this.#perform(found.record, found.program, row);
  }

  #ask(
    record: ExecutionRecord,
    { facts }: ProgramRow,
    row: CallRow,
    { arguments: args, argsSha256, toolVersion }: Extract<InnerCallPlan, { by: 'caller' }>,
  ): void {
    this.#store.patchCall(row, {
      status: 'pending',
      arguments: JSON.stringify(args),
      made: { by: 'caller', toolVersion, argsSha256, timeoutMs: null, startedAtMs: Date.now() },
      shown: this.#store.lastShown(record.n) + 1,
      waitsUntilMs: Date.now() + facts.limits.wait_timeout_s * 1_000,
    });
    this.#asks(record, row);
  }

  #asks(record: ExecutionRecord, row: CallRow): void {
    this.#port.asked(record, row);
    this.#port.changed(record);
    this.#port.look();
  }

  /** Answers of the caller. */
  answer(record: ExecutionRecord, results: readonly ToolResult[]): Outcome<null> {
    const given = givenAnswers(this.#store, record.n, results);
    if (!given.ok) return given;
    for (const { row, answer } of given.value) {
      this.#end(record, row, { status: 'error' in answer ? 'failed' : 'succeeded', ...answer });
    }
    if (given.value.length > 0) this.#row.patch({ lastActivityAtMs: Date.now() });
    return success(null);
  }

  /** A call that its caller, or who had to allow it, left without an answer fails in the program. */
  waitedTooLong(record: ExecutionRecord, row: CallRow): void {
    if (row.status === 'awaiting_approval') {
      this.#approvals.giveUp(row);
      const error = notAllowed({ status: 'expired', reason: null });
      this.#end(record, row, { status: 'refused', error });
      return;
    }
    const error = { code: 'wait_timeout', message: 'nobody answered the call in time' };
    this.#end(record, row, { status: 'failed', outcome: 'timeout', error });
  }

  /** The one way to an end of a call: written with what its receipt will say, then sent. */
  #end(record: ExecutionRecord, row: CallRow, end: CallEnd): void {
    const { status, outcome = OUTCOMES[status], ...answer } = end;
    const resultBytes = 'result' in answer ? utf8(JSON.stringify(answer.result) ?? 'null').length : 0;
    const fault = chargeResult(this.#store, record.n, resultBytes);
    const given = fault === undefined ? answer : { error: fault };
    this.#store.patchCall(row, {
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
    this.#records.ended(record, row, { status: outcome, given });
    this.#port.changed(record);
    if (isTerminal(record.status)) return;
    this.#port.answered(record);
  }

  /** The program has ended: calls that nobody executes any more are void, and those under way are broken off. */
  programEnded({ n }: ExecutionRecord): void {
    this.#refusals.delete(n);
    this.#admission.ended(n);
    for (const row of this.#store.callsIn(n, ['received', 'awaiting_approval', 'pending'])) {
      if (row.status === 'awaiting_approval') this.#approvals.giveUp(row);
      this.#store.patchCall(row, { status: 'void', finishedAtMs: Date.now(), waitsUntilMs: null });
    }
    for (const row of this.#store.callsIn(n, ['running'])) this.#performing.breakOff(row);
  }
}

const FORKED_MEANWHILE: CallError = {
  code: 'unknown',
  message: 'the session was forked during the call, which may have had its effect',
};

const END_NOT_SEEN: CallError = {
  code: 'unknown',
  message: 'the gateway restarted during the call, which may have had its effect',
};
