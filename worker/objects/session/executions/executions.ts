/** The executions of this session that have not ended: how they are accepted, move and end. */
import type { Envelope } from '../../../../shared/dsse.ts';
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Execution, ExecutionOutcome, StreamName } from '../../../../shared/execution.ts';
import type { Relay } from '../../../../shared/grant.ts';
import { isTerminal, moveExecution, type TerminalStatus } from '../../../../shared/lifecycle.ts';
import { MAX_QUEUED_EXECUTIONS } from '../../../../shared/limits.ts';
import type { Receipt } from '../../../../shared/receipt.ts';
import { ToolNameSchema } from '../../../../shared/tool.ts';
import { logWarning } from '../../log.ts';
import type { EventLogs } from '../event-logs/logs.ts';
import type { ExecuteInput } from '../port.ts';
import type { ForkedProgram } from '../programs/forked.ts';
import type { KeptSince } from '../retention/retention-sweep.ts';
import { type ExecutionRecord, type GrantReference, isToBeSent } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { SessionStore } from '../rows/store.ts';
import { History } from './history.ts';
import { type Arguments, inheritedExecution, type NewPlace, newExecution } from './new-execution.ts';
import { executionSummary, executionView, NO_CONTENT, type ViewOptions } from './result.ts';
import { Waiters } from './waiters.ts';

/** A receipt that was checked and signed by the edge too, and its place in the chain. */
export interface ChainLink {
  envelope: Envelope;
  /** Whether the host says that a stream is longer than what it sent. */
  truncated: boolean;
  seq: number;
  sha256: string;
  usage: Receipt['usage'];
}

interface End
  extends Pick<Partial<ExecutionOutcome>, 'exit_code' | 'signal' | 'error' | 'reason' | 'state_lost'> {
  status: TerminalStatus;
  outcome?: ExecutionOutcome;
  receipt?: ChainLink;
}

/** How an execution is taken in. `storing`: its row is being written; what else of it belongs to the same write. */
export interface Taking {
  arguments: Arguments;
  relay: Relay;
  storing?: (record: ExecutionRecord) => void;
}

export interface ExecutionsPort {
  /** Highest frame of the host that is taken in: written with each end. */
  lastSeq(): number;
  /** Its row is being written, or its end: what belongs to the same write. */
  storing(record: ExecutionRecord): void;
  ending(record: ExecutionRecord): void;
  /** Somebody waits for the end of an execution. */
  awaited(record: ExecutionRecord): void;
  /** What is stored of long streams of one that ends: its streams have these lengths. */
  stored(record: ExecutionRecord, ends: Record<StreamName, number>): Record<StreamName, number> | null;
  /** What was used is known: of an end, or of one that was given up before. */
  used(usage: Receipt['usage'] | undefined, executions: 0 | 1): void;
  /** Whether the session goes back to where it was before this execution, which ends so. */
  isTakenBack(record: ExecutionRecord, status: TerminalStatus): boolean;
  /** An execution ended: the next may run, timers go. */
  ended(record: ExecutionRecord): void;
}

export class Executions {
  readonly #row: SessionRow;
  readonly #store: SessionStore;
  readonly #logs: EventLogs;
  readonly #port: ExecutionsPort;
  readonly #history: History;
  readonly #waiters = new Waiters();
  readonly #unwritten = new Set<ExecutionRecord>();
  /** Accepted and not in a row yet, and what is written with it: with its grant, before anybody is told of it. */
  readonly #rowless = new Map<ExecutionRecord, Taking['storing']>();
  #open: ExecutionRecord[];
  #lastNumber: number;

  constructor(row: SessionRow, store: SessionStore, logs: EventLogs, port: ExecutionsPort) {
    this.#row = row;
    this.#store = store;
    this.#logs = logs;
    this.#port = port;
    this.#open = store.openExecutions();
    this.#lastNumber = store.lastNumber();
    this.#history = new History(store);
  }

  get open(): readonly ExecutionRecord[] {
    return this.#open;
  }

  get total(): number {
    return this.#lastNumber;
  }

  /** Bytes of output and results that are kept of all of them. */
  get contentBytes(): number {
    return this.#history.contentBytes;
  }

  /** Those that the host has. */
  get inFlight(): readonly ExecutionRecord[] {
    return this.#open.filter((record) => !isToBeSent(record));
  }

  get firstToSend(): ExecutionRecord | undefined {
    return this.#open.find(isToBeSent);
  }

  /** The host says that the sandbox is gone, and said nothing of a start before: it is sent to the next one. */
  sendAgain(record: ExecutionRecord): void {
    this.patch(record, { sentAtMs: null, deadlineAtMs: null });
  }

  /** Takes a new execution in; the queue is bounded. The caller sees to it that its row is written. */
  accept(input: ExecuteInput, { arguments: given, relay, storing }: Taking): Outcome<ExecutionRecord> {
    const tool = ToolNameSchema.safeParse(input.body.tool_name);
    if (!tool.success) return failure('tool_not_found', `there is no tool ${input.body.tool_name}`);
    const queued = this.#open.filter(({ status }) => status === 'queued').length;
    if (queued >= MAX_QUEUED_EXECUTIONS) {
      return failure('queue_full', `${queued} executions wait in this session`, { retry_after_s: 1 });
    }
    const record = newExecution(this.#place, {
      input,
      tool: tool.data,
      arguments: given,
      relay,
      rollback: this.#mayBeTakenBack(input),
    });
    this.#rowless.set(record, storing);
    this.#add(record);
    return success(record);
  }

  /** Takes in a program of the session that this one was forked from; the host goes on with it. */
  inherit(program: ForkedProgram, executionId: string, grant: GrantReference): ExecutionRecord {
    const record = inheritedExecution(this.#place, { program, executionId, grant });
    this.#store.insertExecution(record);
    this.#add(record);
    return record;
  }

  get #place(): NewPlace {
    return { n: this.#lastNumber + 1, epoch: this.#row.record.epoch };
  }

  #add(record: ExecutionRecord): void {
    this.#lastNumber = record.n;
    this.#open.push(record);
    this.#logs.begin(record);
  }

  #mayBeTakenBack({ body }: ExecuteInput): boolean {
    const { rollback, ephemeral } = this.#row.record.facts;
    return !ephemeral && (body.rollback ?? rollback) === 'on_failure';
  }

  /** Writes the row of an execution that has none yet. */
  store(record: ExecutionRecord): void {
    const storing = this.#rowless.get(record);
    if (!this.#rowless.delete(record)) return;
    this.#store.transaction(() => {
      this.#store.insertExecution(record);
      storing?.(record);
      this.#port.storing(record);
    });
  }

  find(executionId: string): ExecutionRecord | undefined {
    return (
      this.#open.find((record) => record.executionId === executionId) ?? this.#store.execution(executionId)
    );
  }

  /** Of the execution with this number, where it is still known. */
  idOf(n: number): string | undefined {
    return this.#open.find((record) => record.n === n)?.executionId ?? this.#store.executionId(n);
  }

  findByKey(key: string): ExecutionRecord | undefined {
    return this.#open.find((record) => record.idempotencyKey === key) ?? this.#store.executionByKey(key);
  }

  patch(record: ExecutionRecord, patch: Partial<ExecutionRecord>): void {
    Object.assign(record, patch);
    if (this.#rowless.has(record)) this.store(record);
    else this.#store.updateExecution(record.n, patch);
  }

  /** Written with the next batch: what the host says of a start is sent again if it is lost. */
  started(executionId: string, startedAt: string): boolean {
    const record = this.#open.find((candidate) => candidate.executionId === executionId);
    const moved = record === undefined ? undefined : moveExecution(record.status, 'running');
    if (record === undefined || moved?.ok !== true) return false;
    record.status = moved.value;
    record.startedAt = startedAt;
    this.#unwritten.add(record);
    this.#logs.of(record).wake();
    return true;
  }

  /** The host's clock of a program stands still while it waits for tools, and goes on: there is no deadline meanwhile. */
  moveClock(
    executionId: string,
    to: { status: 'waiting' | 'running'; deadlineAtMs: number | null },
  ): ExecutionRecord | undefined {
    const record = this.#open.find((candidate) => candidate.executionId === executionId);
    if (record === undefined) return undefined;
    // Said again by a host that took it over.
    const moved = record.status === to.status || moveExecution(record.status, to.status).ok;
    if (!moved) return undefined;
    this.patch(record, to);
    this.#logs.of(record).wake();
    return record;
  }

  /** Something of an ended execution is kept beside its output. */
  addContent(record: ExecutionRecord, bytes: number): void {
    if (bytes === 0) return;
    this.patch(record, { contentBytes: record.contentBytes + bytes });
    this.#history.grew(bytes);
  }

  /** Lets go a few of those that ended before; true where there may be more. The caller has a transaction open. */
  expire(since: KeptSince): boolean {
    return this.#history.expire(since);
  }

  /** Writes what is pending of all executions. The caller has a transaction open. */
  flush(): void {
    this.#logs.flush();
    for (const { n, status, startedAt } of this.#unwritten) {
      this.#store.updateExecution(n, { status, startedAt });
    }
    this.#unwritten.clear();
  }

  /** The one way to an end. A status that cannot be left for this one stays; a receipt is kept in either case. */
  end(record: ExecutionRecord, end: End): void {
    const moved = moveExecution(record.status, end.status);
    if (!moved.ok) logWarning('late_end', { execution_id: record.executionId, detail: moved.detail });
    const { receipt } = end;
    const patch: Partial<ExecutionRecord> = {
      ...(moved.ok ? this.#endPatch(record, end) : {}),
      ...(receipt === undefined ? {} : { receiptSeq: receipt.seq }),
    };
    const content = record.status === 'queued' ? NO_CONTENT : this.#logs.of(record).unflushed();
    // What is pending of a start is in the patch too.
    if (moved.ok) this.#unwritten.delete(record);
    this.#store.transaction(() => {
      this.store(record);
      this.flush();
      this.#store.updateExecution(record.n, patch);
      if (receipt !== undefined) this.#store.insertReceipt(receipt.seq, receipt.envelope);
      if (moved.ok) this.#port.ending({ ...record, ...patch });
      this.#row.patch({
        lastSeq: this.#port.lastSeq(),
        ...(receipt === undefined ? {} : { chainSeq: receipt.seq, chainSha256: receipt.sha256 }),
        ...(moved.ok ? { lastActivityAtMs: Date.now() } : {}),
        ...(end.outcome?.shell === undefined ? {} : { shell: end.outcome.shell }),
      });
    });
    Object.assign(record, patch);
    if (!moved.ok) {
      if (receipt !== undefined) this.#port.used(receipt.usage, 0);
      return;
    }
    this.#history.ended(record);
    this.#open = this.#open.filter((other) => other !== record);
    this.#logs.end(record);
    const isNothing = end.status === 'cancelled' || end.status === 'refused';
    this.#port.used(receipt?.usage, isNothing ? 0 : 1);
    this.answer(record, () => success(this.view(record, { receipt: receipt?.envelope, content })));
    this.#port.ended(record);
  }

  #endPatch(record: ExecutionRecord, end: End): Partial<ExecutionRecord> {
    const { outcome } = end;
    const log = record.status === 'queued' ? undefined : this.#logs.of(record);
    const finishedAt = outcome?.finished_at ?? new Date().toISOString();
    const ends = {
      stdout: Math.max(outcome?.stdout_bytes ?? 0, log?.endOf('stdout') ?? 0),
      stderr: Math.max(outcome?.stderr_bytes ?? 0, log?.endOf('stderr') ?? 0),
    };
    return {
      status: end.status,
      arguments: null,
      startedAt: outcome?.started_at ?? record.startedAt,
      finishedAt,
      durationMs: outcome?.duration_ms ?? durationMs(record.startedAt, finishedAt),
      exitCode: outcome?.exit_code ?? null,
      signal: outcome?.signal ?? null,
      error: outcome?.error ?? null,
      reason: end.reason ?? outcome?.reason ?? null,
      stateLost: record.stateLost || outcome?.state_lost === true,
      stdoutBytes: ends.stdout,
      stderrBytes: ends.stderr,
      stored: this.#port.stored(record, ends),
      // Without a receipt nobody says that the output is whole, unless nothing ran.
      truncated: end.receipt?.truncated ?? (end.status !== 'refused' && end.status !== 'cancelled'),
      contentBytes: log?.contentBytes ?? 0,
      rolledBack: this.#port.isTakenBack(record, end.status),
    };
  }

  /** Ends everything that has not ended: what was never sent as `cancelled`, the rest as `inFlight`. */
  endAll(inFlight: 'interrupted' | 'unknown', reason: string): void {
    for (const record of this.#open.slice()) {
      this.end(record, { status: isToBeSent(record) ? 'cancelled' : inFlight, reason });
    }
  }

  /** Answers those who wait, with something else than the result. */
  answer(record: ExecutionRecord, answer: () => Outcome<Execution>): void {
    this.#waiters.answer(record.executionId, answer);
  }

  /** Resolves with the result at the end. */
  async wait(record: ExecutionRecord): Promise<Outcome<Execution>> {
    if (isTerminal(record.status)) return success(this.view(record));
    this.#port.awaited(record);
    return this.#waiters.wait(record.executionId);
  }

  /** Resolves at the end, or after that time with how it stands: who waits so has no need of the deadline. */
  async within(record: ExecutionRecord, waitMs: number): Promise<Outcome<Execution>> {
    const isDue = isTerminal(record.status) || waitMs === 0;
    const answer = isDue ? undefined : await this.#waiters.within(record.executionId, waitMs);
    return answer ?? success(this.view(record));
  }

  isAwaited({ executionId }: ExecutionRecord): boolean {
    return this.#waiters.has(executionId);
  }

  /** Newest first, those before number `before`, without what they wrote or gave. */
  summariesBefore(before: number, limit: number): { n: number; view: Execution }[] {
    return this.#store.executionsBefore(before, limit).map((row) => {
      const open = this.#open.find(({ n }) => n === row.n);
      return { n: row.n, view: this.#summary(open === undefined ? row : this.#withLength(open)) };
    });
  }

  #summary(record: ExecutionRecord): Execution {
    const { sessionId } = this.#row.record.facts;
    return executionSummary(record, this.#store, { sessionId, encoding: record.encoding });
  }

  /** What has come so far of one that has not ended. */
  #withLength(record: ExecutionRecord): ExecutionRecord {
    const log = this.#logs.of(record);
    return { ...record, stdoutBytes: log.endOf('stdout'), stderrBytes: log.endOf('stderr') };
  }

  view(record: ExecutionRecord, options: Partial<ViewOptions> = {}): Execution {
    return executionView(record, this.#store, {
      ...options,
      sessionId: this.#row.record.facts.sessionId,
      encoding: options.encoding ?? record.encoding,
    });
  }
}

function durationMs(startedAt: string | null, finishedAt: string): number | null {
  return startedAt === null ? null : Math.max(0, Date.parse(finishedAt) - Date.parse(startedAt));
}
