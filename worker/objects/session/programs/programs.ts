/**
 * The programs of this session: their begin and end, their clocks, and the frames of the host that concern them. What an
 * eviction or a restart finds half done goes on from the rows.
 */
import { MAX_CALL_ARGUMENTS_BYTES, type ToolResult } from '../../../../shared/code-mode.ts';
import type { Outcome } from '../../../../shared/errors.ts';
import type { StreamEvent } from '../../../../shared/execution.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import { HOST_ANSWER_GRACE_MS } from '../../../../shared/limits.ts';
import type { CarriedExecution } from '../../../../shared/snapshot.ts';
import type { Configuration } from '../../../configuration.ts';
import type { Env } from '../../../env.ts';
import { earliest } from '../../earliest.ts';
import type { EdgeReceipts } from '../edge-receipts/edge-receipts.ts';
import type { EventLogs } from '../event-logs/logs.ts';
import type { Executions } from '../executions/executions.ts';
import type { ProgramFrame } from '../link/intake.ts';
import type { ApprovalDecision } from '../port.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import { Attendance } from './attendance.ts';
import { CallRecords } from './call-records.ts';
import { AnswerDelivery, type SendAnswer } from './delivery.ts';
import { type ForkedProgram, forkedProgram } from './forked.ts';
import { InnerCalls, type InnerCallsPort } from './inner-calls.ts';
import { OpenPrograms } from './open-programs.ts';
import type { ProgramFacts } from './port.ts';
import { ProgramStore } from './store.ts';
import { argumentsOf } from './view.ts';

type Frame<Type extends ProgramFrame['type']> = Extract<ProgramFrame, { type: Type }>;

/** Each may have a megabyte of arguments. */
const MAX_EVENTS_AT_ONCE = 4;
type ToolCallEvent = Extract<StreamEvent, { event: 'tool_call' }>;

export interface ProgramsPort
  extends Pick<InnerCallsPort, 'look' | 'stop' | 'runsBeside' | 'runInner' | 'stopInner'> {
  /** The clock of the program stands still, or goes on. */
  clockChanged(record: ExecutionRecord): void;
  /** There is an answer for a program: a session that is suspended is woken for it. */
  answered(): void;
  /** A call waits for the caller: belongs to the write of that. */
  asked(record: ExecutionRecord, call: { id: string; tool_name: string }): void;
}

export class Programs {
  readonly store: ProgramStore;
  readonly records: CallRecords;
  readonly #row: SessionRow;
  readonly #executions: Executions;
  readonly #port: ProgramsPort;
  readonly #open: OpenPrograms;
  readonly #calls: InnerCalls;
  readonly #delivery: AnswerDelivery;
  readonly #attendance: Attendance;

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
    this.#row = parts.row;
    this.#executions = parts.executions;
    this.#port = parts.port;
    this.#open = new OpenPrograms(this.store, parts.executions);
    this.#delivery = new AnswerDelivery(this.store, parts.send);
    this.#attendance = new Attendance(this.store);
    this.#calls = new InnerCalls({
      ...parts,
      store: this.store,
      records: this.records,
      open: this.#open,
      port: {
        ...parts.port,
        changed: ({ n }) => this.#attendance.changed(n),
        asked: (record, { callId, name }) => {
          parts.port.asked(record, { id: callId, tool_name: name });
          parts.logs.of(record).wake();
        },
        progressed: (record, { callId, name }, progress) => {
          if (isTerminal(record.status)) return;
          const log = parts.logs.of(record);
          log.progress.say(callId, { id: callId, tool_name: name, ...progress });
          log.wake();
        },
        answered: (record) => {
          this.#delivery.pump(record);
          parts.port.answered();
        },
      },
    });
  }

  /** In the write of its execution's row, before that is sent: no call of it can come earlier. */
  begin({ n }: ExecutionRecord, facts: ProgramFacts): void {
    this.store.insert(n, facts);
    this.#open.add(n);
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
    for (const call of calls) this.#calls.inherit(record, program, call);
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
    for (const open of this.#open.all()) this.#calls.recover(open);
  }

  linkUp(): void {
    this.#delivery.linkUp();
    for (const { record } of this.#open.all()) this.#delivery.pump(record);
  }

  /** A piece of a call, each taken once however often it comes. False where it is of no use. */
  #takeCall(frame: Frame<'tool_call'>, payload: Uint8Array): boolean {
    const record = this.#open.withExecution(frame.execution_id);
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
    this.#calls.received({ record, program }, { call, name, bytes });
    return true;
  }

  #taken(frame: Frame<'tool_result_taken'>): boolean {
    const record = this.#open.withExecution(frame.execution_id);
    const row = record === undefined ? undefined : this.store.call(record.n, frame.call);
    if (record === undefined || row === undefined) return false;
    this.#delivery.taken(record, row);
    return true;
  }

  /** The host stopped or started the program's clock: so does this object its own, and time that is gone never comes back. */
  #clock(frame: Frame<'waiting' | 'continued'>): boolean {
    const waits = frame.type === 'waiting';
    const known = this.#open.withExecution(frame.execution_id);
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
    if (!this.#open.remove(record.n)) return;
    this.#calls.programEnded(record);
    this.#delivery.ended(this.store.untaken(record.n));
    this.#executions.addContent(record, this.store.letGo(record.n));
    this.#attendance.changed(record.n);
  }

  /** Answers of the caller. */
  answer(record: ExecutionRecord, results: readonly ToolResult[]): Outcome<null> {
    return this.#calls.answer(record, results);
  }

  /** As often as wanted: what is decided already stays so. */
  decided(executionId: string, decision: ApprovalDecision): void {
    this.#calls.decided(executionId, decision);
  }

  /** From the alarm: what waited for longer than it may fails in the program. */
  check(nowMs: number): void {
    for (const { record, row } of this.#open.pendingCalls()) {
      if (row.waitsUntilMs !== null && nowMs >= row.waitsUntilMs) this.#calls.waitedTooLong(record, row);
    }
  }

  /** Bytes that are kept for programs that have not ended; of the others they are with their executions. */
  get openBytes(): number {
    return this.#open.keptBytes();
  }

  nextMoment(): number | null {
    return earliest(this.#open.pendingCalls().map(({ row }) => row.waitsUntilMs));
  }

  /** Resolves when the program has ended, or waits for its caller. */
  wait(record: ExecutionRecord): Promise<void> {
    return this.#attendance.wait(record);
  }
}
