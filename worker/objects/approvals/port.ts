/** What others may ask of the calls of a tenant that wait for an approval. */
import type { ApprovalRequest, ApprovalStatus, Decision } from '../../../shared/approval.ts';
import type { SealedCallback } from '../../../shared/callback.ts';
import type { Outcome } from '../../../shared/errors.ts';
import type { Execution } from '../../../shared/execution.ts';
import type { ToolPolicy } from '../../../shared/tool-policy.ts';
import type { Idempotency } from '../../middleware/idempotency.ts';
import type { Caller } from '../caller.ts';

/** All that is needed to make the call later, as who asked for it. */
export interface WaitingCall {
  caller: Caller;
  scopes: string[];
  toolPolicy: ToolPolicy | null;
  /** By which the token that it was asked for with is taken back. */
  tokenId: string;
  issuedAtMs: number;
  apiKeyId: string | null;
  sessionId: string;
  tool: { name: string; version: string; digest: string };
  arguments: Record<string, unknown>;
  timeoutMs: number;
  requestId: string;
  /** Who makes it once it is approved: these approvals, or the session, whose program waits for it and is told. */
  madeBy: 'approvals' | 'session';
}

export interface AskInput {
  call: WaitingCall;
  idempotency: Idempotency | null;
  /** Whether the same call, made before and not answered yet, is meant: a model asks again for what it asked for. */
  claims: boolean;
  /** Where its end is told, whatever becomes of it. */
  callback?: SealedCallback | null;
  /** Of a call that has an id already: asked for again, it is the same. */
  executionId?: string;
}

export interface ApprovalsPort {
  /** Takes a call in. Nothing of it is made before somebody approves. */
  ask(input: AskInput): Promise<Outcome<Execution>>;
  /** The call as its caller sees it, as long as it is not in its session. */
  find(caller: Caller, place: { sessionId: string; executionId: string }): Promise<Outcome<Execution>>;
  /** The same: at once where it has ended or is in its session, else at the next change, or after that time. */
  settled(
    caller: Caller,
    place: { sessionId: string; executionId: string },
    waitMs: number,
  ): Promise<Outcome<Execution>>;
  /** The caller's calls in a session that are not in the session itself, the newest first, behind one of them. */
  ofSession(
    caller: Caller,
    sessionId: string,
    page: { after: { atMs: number; executionId: string } | null; limit: number },
  ): Promise<Outcome<Execution[]>>;
  /** By who made it. */
  cancel(
    caller: Caller,
    place: { sessionId: string; executionId: string },
  ): Promise<Outcome<{ execution_id: string }>>;
  /** By another subject of the tenant. */
  decide(by: string, executionId: string, decision: Decision): Promise<Outcome<Execution>>;
  /** Its result was given: the same call once more is another one. */
  claimed(executionId: string): Promise<Outcome<null>>;
  list(filter: { status: ApprovalStatus | null; limit: number }): Promise<Outcome<ApprovalRequest[]>>;
}
