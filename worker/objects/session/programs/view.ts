/** A program as the API shows it. */
import type { InnerCall, PendingCall, Program } from '../../../../shared/code-mode.ts';
import type { Execution } from '../../../../shared/execution.ts';
import type { CallRow, ProgramRow, ProgramStore } from './store.ts';

const MAX_CALLS_SHOWN = 1_000;

export function programView(store: ProgramStore, program: ProgramRow, execution: Execution): Program {
  const { n, facts, calls, writes, bytes } = program;
  return {
    program_id: execution.execution_id,
    session_id: execution.session_id,
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
    tool_name: row.name,
    status: row.status === 'received' ? 'running' : row.status,
    arguments_bytes: row.argumentsBytes,
    result_bytes: row.resultBytes,
    error: row.error,
    created_at: new Date(row.createdAtMs).toISOString(),
    finished_at: row.finishedAtMs === null ? null : new Date(row.finishedAtMs).toISOString(),
  };
}
