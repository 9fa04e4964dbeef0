/** Calls of programs as executions of their session: how each is shown, and the receipt of one that was made. */
import type { Execution } from '../../../../shared/execution.ts';
import type { TerminalStatus } from '../../../../shared/lifecycle.ts';
import { type Given, givenText } from '../../../tools/given.ts';
import type { EdgeReceipts } from '../edge-receipts/edge-receipts.ts';
import type { Executions } from '../executions/executions.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import { type CallRow, numberOf, type ProgramStore, programOfCall } from './store.ts';
import { callIdOfExecution, executionIdOfCall, innerExecution } from './view.ts';

interface Parts {
  row: SessionRow;
  executions: Executions;
  receipts: EdgeReceipts;
}

export class CallRecords {
  readonly #store: ProgramStore;
  readonly #parts: Parts;

  constructor(store: ProgramStore, { row, executions, receipts }: Parts) {
    this.#store = store;
    this.#parts = { row, executions, receipts };
  }

  /** In the same turn as its end is written. Of a call that was never made there is nothing to say. */
  ended(
    { executionId }: ExecutionRecord,
    row: CallRow,
    { status, given }: { status: TerminalStatus; given: Given },
  ): void {
    const { made, finishedAtMs } = row;
    // What ran in the session has the receipt of its host.
    if (made === null || made.by === 'session' || finishedAtMs === null) return;
    this.#parts.receipts.add({
      execution_id: executionIdOfCall(row.callId),
      parent: { execution_id: executionId, call: numberOf(row) },
      tool: row.name,
      performed_by: made.by,
      status,
      made,
      finishedAtMs,
      result: givenText(given),
    });
  }

  find(executionId: string): Execution | undefined {
    const row = this.#store.callWithId(callIdOfExecution(executionId));
    return row === undefined ? undefined : this.#view(row);
  }

  /** Of all programs, newest first, those before a place. */
  summariesBefore(
    before: { n: number; call: number },
    limit: number,
  ): { n: number; call: number; view: Execution }[] {
    return this.#store
      .callsBefore(before, limit)
      .map((row) => ({ n: programOfCall(row), call: numberOf(row), view: this.#view(row) }));
  }

  #view(row: CallRow): Execution {
    const { row: session, executions, receipts } = this.#parts;
    const { sessionId } = session.record.facts;
    const parentId = executions.idOf(programOfCall(row));
    return innerExecution(row, {
      sessionId,
      parentId,
      receipt: receipts.now(executionIdOfCall(row.callId)),
    });
  }
}
