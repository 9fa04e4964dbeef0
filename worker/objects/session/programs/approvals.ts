/** Calls of programs that somebody else has to allow: asked for at the approvals of the tenant, as often as wanted. */
import type { CallError } from '../../../../shared/code-mode.ts';
import { failure, type Outcome } from '../../../../shared/errors.ts';
import type { Execution } from '../../../../shared/execution.ts';
import type { Env } from '../../../env.ts';
import { approvalCalls, SAFE } from '../../object-calls.ts';
import type { ApprovalDecision } from '../port.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { CallRow, ProgramRow } from './store.ts';
import { argumentsOf, executionIdOfCall } from './view.ts';

export class ProgramApprovals {
  readonly #env: Env;
  readonly #row: SessionRow;

  constructor(env: Env, row: SessionRow) {
    this.#env = env;
    this.#row = row;
  }

  /** The call as the approvals have it: decided, or not yet. */
  async ask(
    { requestId }: ExecutionRecord,
    { facts }: ProgramRow,
    row: CallRow,
  ): Promise<Outcome<Execution>> {
    const { tenant, subject, sessionId } = this.#row.record.facts;
    if (row.approval === null) return failure('approval_required', 'nothing is known of its approval');
    const { scopes, toolPolicy, tokenId, issuedAtMs, apiKeyId } = facts;
    const { tool, timeoutMs } = row.approval;
    const call = {
      caller: { tenant, subject },
      scopes,
      toolPolicy,
      tokenId,
      issuedAtMs,
      apiKeyId,
      sessionId,
      tool,
      arguments: argumentsOf(row) ?? {},
      timeoutMs,
      requestId,
      madeBy: 'session' as const,
    };
    const executionId = executionIdOfCall(row.callId);
    return approvalCalls(this.#env, tenant)(
      (stub) => stub.ask({ call, idempotency: null, claims: false, executionId }),
      SAFE,
    );
  }

  /** Nobody waits for it any more. Should this not be heard, a decision that comes later changes nothing. */
  giveUp(row: CallRow): void {
    const { tenant, subject, sessionId } = this.#row.record.facts;
    const place = { sessionId, executionId: executionIdOfCall(row.callId) };
    const approvals = approvalCalls(this.#env, tenant);
    void approvals((stub) => stub.cancel({ tenant, subject }, place), SAFE).catch(() => undefined);
  }
}

/** What the program is told of a call that was not allowed. */
export function notAllowed({ status, reason }: ApprovalDecision): CallError {
  switch (status) {
    case 'denied':
      return { code: 'approval_denied', message: reason ?? 'the call was denied' };
    case 'cancelled':
      return { code: 'cancelled', message: 'the call was withdrawn before anybody decided about it' };
    case 'approved':
    case 'expired':
      return { code: 'approval_expired', message: 'nobody decided about the call in time' };
  }
}
