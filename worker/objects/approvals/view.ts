/** A call that waits for an approval, as its caller and who decides see it. */
import type { Approval, ApprovalRequest } from '../../../shared/approval.ts';
import type { Execution } from '../../../shared/execution.ts';
import { TERMINAL_GRACE_MS } from '../../../shared/limits.ts';
import { edgeExecutionBegun } from '../../tools/edge-execution.ts';
import type { ApprovalRow } from './store.ts';

export function viewOf(row: ApprovalRow, nowMs: number): Execution {
  const { call, executionId, requestedAtMs, decidedAtMs } = row;
  const facts = { sessionId: call.sessionId, executionId, toolName: call.tool.name };
  const begun = edgeExecutionBegun({ ...facts, receivedMs: requestedAtMs, startedMs: requestedAtMs });
  return {
    ...begun,
    started_at: null,
    approval: approvalOf(row),
    finished_at:
      row.status === 'waiting' || decidedAtMs === null ? null : new Date(decidedAtMs).toISOString(),
    ...standing(row, nowMs),
  };
}

type Standing = Partial<Pick<Execution, 'status' | 'reason' | 'error' | 'finished_at'>>;

function standing({ status, reason, refusal, decidedAtMs, call }: ApprovalRow, nowMs: number): Standing {
  switch (status) {
    case 'waiting':
      return { status: 'waiting' };
    case 'denied':
      return refused('approval_denied', 'ApprovalDenied', reason ?? 'the call was denied');
    case 'expired':
      return refused('approval_expired', 'ApprovalExpired', 'nobody decided about the call in time');
    case 'cancelled':
      return { status: 'cancelled', reason: 'interrupted' };
    case 'approved': {
      if (refusal !== null) return refused('not_made', 'CallRefused', refusal);
      // Whoever was to make it is gone without a word.
      const isLost = nowMs > (decidedAtMs ?? 0) + call.timeoutMs + TERMINAL_GRACE_MS;
      if (isLost) return { status: 'unknown', reason: 'end_not_seen' };
      return { status: 'queued', finished_at: null };
    }
  }
}

function refused(reason: string, name: string, message: string): Standing {
  return { status: 'refused', reason, error: { name, message, traceback: '' } };
}

export function requestOf(row: ApprovalRow): ApprovalRequest {
  const { executionId, call } = row;
  return {
    ...approvalOf(row),
    execution_id: executionId,
    session_id: call.sessionId,
    tool_name: call.tool.name,
    tool_version: call.tool.version,
    arguments: call.arguments,
    timeout_ms: call.timeoutMs,
    requested_by: call.caller.subject,
  };
}

function approvalOf(row: ApprovalRow): Approval {
  return {
    status: row.status,
    requested_at: new Date(row.requestedAtMs).toISOString(),
    expires_at: new Date(row.expiresAtMs).toISOString(),
    decided_at: row.decidedAtMs === null ? null : new Date(row.decidedAtMs).toISOString(),
    decided_by: row.decidedBy,
    reason: row.reason,
  };
}
