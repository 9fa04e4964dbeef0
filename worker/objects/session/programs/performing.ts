/** Makes the calls of programs that nobody outside is asked for: those of the gateway, and those that run in the session. */
import type { CallError } from '../../../../shared/code-mode.ts';
import type { Outcome } from '../../../../shared/errors.ts';
import type { Execution } from '../../../../shared/execution.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import { errorOf, type InnerCallPlan } from '../../../programs/inner-call.ts';
import type { EdgeProgress } from '../../../tools/edge-execution.ts';
import { givenBy } from '../../../tools/given.ts';
import type { ExecuteInput } from '../port.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { CallEnd } from './call-end.ts';
import { codeExecution, givenByCode } from './code-call.ts';
import type { CallRow, ProgramStore } from './store.ts';
import { executionIdOfCall } from './view.ts';

const NOT_BESIDE: CallError = {
  code: 'tool_unavailable',
  message: 'the tool runs in this session, in which nothing runs beside this program',
};

export interface PerformingPort {
  /** Whether anything can run beside this program. */
  runsBeside(record: ExecutionRecord): boolean;
  /** Runs a call of a program beside it; resolves at its end. One that is known by its id is not begun again. */
  runInner(input: ExecuteInput): Promise<Outcome<Execution>>;
  stopInner(executionId: string): void;
  /** What is said of a call while it is made. */
  progressed(record: ExecutionRecord, row: CallRow, progress: EdgeProgress): void;
}

export class Performing {
  readonly #store: ProgramStore;
  readonly #row: SessionRow;
  readonly #port: PerformingPort;
  /** Those under way, by row. */
  readonly #underWay = new Map<number, AbortController>();

  constructor(store: ProgramStore, row: SessionRow, port: PerformingPort) {
    this.#store = store;
    this.#row = row;
    this.#port = port;
  }

  async byGateway(
    record: ExecutionRecord,
    row: CallRow,
    { performance, finish, mayRepeat, argsSha256, toolVersion }: Extract<InnerCallPlan, { by: 'gateway' }>,
  ): Promise<CallEnd> {
    const { timeoutMs } = performance;
    const made = { by: 'edge' as const, toolVersion, argsSha256, timeoutMs, startedAtMs: Date.now() };
    this.#store.patchCall(row, { status: 'running', mayRepeat, made });
    const { sessionId } = this.#row.record.facts;
    const ids = { sessionId, executionId: executionIdOfCall(row.callId) };
    const controller = new AbortController();
    this.#underWay.set(row.id, controller);
    const tell = (progress: EdgeProgress) => this.#port.progressed(record, row, progress);
    const execution = finish(await performance.run(ids, controller.signal, tell));
    this.#underWay.delete(row.id);
    const given = givenBy(execution);
    const outcome = isTerminal(execution.status) ? execution.status : 'unknown';
    return { status: 'error' in given ? 'failed' : 'succeeded', outcome, ...given };
  }

  /** As an execution of its own, by the id of the call: asked for again it is the same. */
  async bySession(
    record: ExecutionRecord,
    row: CallRow,
    { call, finish, argsSha256, toolVersion }: Extract<InnerCallPlan, { by: 'session' }>,
  ): Promise<CallEnd> {
    if (!this.#port.runsBeside(record)) return { status: 'refused', error: NOT_BESIDE };
    const { timeoutMs } = call;
    const made = { by: 'session' as const, toolVersion, argsSha256, timeoutMs, startedAtMs: Date.now() };
    this.#store.patchCall(row, { status: 'running', made });
    const executionId = executionIdOfCall(row.callId);
    const controller = new AbortController();
    this.#underWay.set(row.id, controller);
    controller.signal.addEventListener('abort', () => this.#port.stopInner(executionId));
    const ran = await this.#port.runInner(codeExecution(record, { call, executionId, row: this.#row }));
    this.#underWay.delete(row.id);
    const given = ran.ok ? givenByCode(ran.value, finish) : { error: errorOf(ran) };
    return { status: 'error' in given ? 'failed' : 'succeeded', ...given };
  }

  /** Nobody waits for what it gives any more. */
  breakOff({ id }: CallRow): void {
    this.#underWay.get(id)?.abort();
  }
}
