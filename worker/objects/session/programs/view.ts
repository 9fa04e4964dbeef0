/** A program as the API shows it. */
import type { InnerCall, PendingCall, Program } from '../../../../shared/code-mode.ts';
import type { Envelope } from '../../../../shared/dsse.ts';
import type { Execution } from '../../../../shared/execution.ts';
import { type ExecutionStatus, isTerminal } from '../../../../shared/lifecycle.ts';
import { edgeExecutionBegun } from '../../../tools/edge-execution.ts';
import type { CallRow, ProgramRow, ProgramStore } from './store.ts';

const MAX_CALLS_SHOWN = 1_000;

export function programView(store: ProgramStore, program: ProgramRow, execution: Execution): Program {
  const { n, facts, calls, writes, bytes } = program;
  return {
    program_id: execution.execution_id,
    session_id: execution.session_id,
    parent_program_id: facts.parentProgramId,
    language: facts.language,
    status: execution.status,
    pending: store.callsIn(n, ['pending']).map(pendingCall),
    calls: store.calls(n, MAX_CALLS_SHOWN).map(innerCall),
    limits: facts.limits,
    used: { calls, writes, bytes },
    execution,
  };
}

export function pendingCall(row: CallRow): PendingCall {
  return { id: row.callId, tool_name: row.name, arguments: argumentsOf(row) ?? {} };
}

/** Null where they are no longer kept. */
export function argumentsOf(row: CallRow): Record<string, unknown> | null {
  return row.arguments === null ? null : JSON.parse(row.arguments);
}

function innerCall(row: CallRow): InnerCall {
  return {
    id: row.callId,
    execution_id: executionIdOfCall(row.callId),
    tool_name: row.name,
    status: row.status === 'received' ? 'running' : row.status,
    arguments_bytes: row.argumentsBytes,
    result_bytes: row.resultBytes,
    error: row.error,
    created_at: new Date(row.createdAtMs).toISOString(),
    finished_at: row.finishedAtMs === null ? null : new Date(row.finishedAtMs).toISOString(),
  };
}

const EXECUTION_PREFIX = 'exe_';
const CALL_PREFIX = 'tcl_';

/** A call is an execution too, by the same random part of its id. */
export function executionIdOfCall(callId: string): string {
  return EXECUTION_PREFIX + callId.slice(CALL_PREFIX.length);
}

export function callIdOfExecution(executionId: string): string {
  return CALL_PREFIX + executionId.slice(EXECUTION_PREFIX.length);
}

const STATUS: Record<CallRow['status'], ExecutionStatus> = {
  received: 'running',
  running: 'running',
  awaiting_approval: 'waiting',
  pending: 'waiting',
  succeeded: 'succeeded',
  failed: 'failed',
  refused: 'refused',
  unknown: 'unknown',
  void: 'cancelled',
};

/** A call as an execution of its session. What it gave went into its program, and is not kept here. */
export function innerExecution(
  row: CallRow,
  facts: { sessionId: string; parentId: string | undefined; receipt: Envelope | null },
): Execution {
  const { createdAtMs, finishedAtMs, made, error } = row;
  const status = STATUS[row.status];
  const startedMs = made?.startedAtMs ?? createdAtMs;
  const begun = edgeExecutionBegun({
    sessionId: facts.sessionId,
    executionId: executionIdOfCall(row.callId),
    toolName: row.name,
    receivedMs: createdAtMs,
    startedMs,
  });
  return {
    ...begun,
    ...(facts.parentId === undefined ? {} : { parent_execution_id: facts.parentId }),
    status,
    reason: row.status === 'awaiting_approval' ? 'approval_required' : null,
    truncated: (row.resultBytes ?? 0) > 0,
    started_at: made === null ? null : begun.started_at,
    finished_at: finishedAtMs === null ? null : new Date(finishedAtMs).toISOString(),
    duration_ms: isTerminal(status) && finishedAtMs !== null ? Math.max(0, finishedAtMs - startedMs) : null,
    error: error === null ? null : { name: error.code, message: error.message, traceback: '' },
    receipt: facts.receipt,
  };
}
