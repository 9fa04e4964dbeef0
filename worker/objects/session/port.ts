/** What others may ask of a session object. Failures are values: error classes do not survive the call. */
import * as z from 'zod';
import type { ApprovalStatus } from '../../../shared/approval.ts';
import { ArgumentConstraintSchema } from '../../../shared/argument-constraint.ts';
import { type SealedCallback, SealedCallbackSchema } from '../../../shared/callback.ts';
import type { Program, ToolResult } from '../../../shared/code-mode.ts';
import type { Envelope } from '../../../shared/dsse.ts';
import type { ErrorCode, Outcome } from '../../../shared/errors.ts';
import type { SessionEventFacts } from '../../../shared/event.ts';
import { ExecuteSchema, type Execution, type StreamName } from '../../../shared/execution.ts';
import { ExecutionIdSchema, TenantSchema } from '../../../shared/ids.ts';
import type { ReceiptExportSchema } from '../../../shared/receipt-verify.ts';
import type { Rollback } from '../../../shared/rollback.ts';
import type { Resume, Session, SizedSession, UpdateSession } from '../../../shared/session.ts';

import type { EdgeProgress } from '../../tools/edge-execution.ts';
import type { Caller } from '../caller.ts';
import type { SnapshotFacts, SnapshotKind } from '../snapshots/port.ts';
import type { AccountTerms } from '../tenant/ledger/account.ts';
import type { DetachedEdgeCall } from './edge-calls/detached-call.ts';
import type { EdgeCall } from './edge-calls/edge-call.ts';
import type { ToldProgress } from './edge-calls/newest-progress.ts';
import type { OutputAt, OutputExtent } from './outputs/port.ts';
import type { ForkedProgram } from './programs/forked.ts';
import type { ProgramFacts } from './programs/port.ts';
import { CalledAsSchema } from './rows/records.ts';

/** A session as it stood at a checkpoint, for others to be made of. */
export interface ForkPoint {
  snapshot: SnapshotFacts;
  programs: ForkedProgram[];
}

export interface SnapshotWish {
  kind: SnapshotKind;
  name: string;
  /** A new one where it is absent. It is used once. */
  snapshotId?: string;
  /** Where the sandbox was lost, an empty one takes its place first; the next call says so. */
  replacesLost?: boolean;
}

export interface CreateInput {
  sessionId: string;
  caller: Caller;
  request: SizedSession;
  host: { hostId: string; imageDigest: string };
  /** The session ends with its first execution. */
  ephemeral: boolean;
  /** What the sandbox is made of, in place of an empty one. */
  snapshot?: SnapshotFacts | undefined;
  /** Those of its programs that go on in this session. */
  programs?: ForkedProgram[] | undefined;
}

export const CallerSchema = z.strictObject({ tenant: TenantSchema, subject: z.string().min(1) });

export const ExecuteInputSchema = z.strictObject({
  caller: CallerSchema,
  body: ExecuteSchema,
  /** The registered tool that the call is of, where the body is how it runs. */
  calledAs: CalledAsSchema.nullable().optional(),
  /** What its arguments were held to. */
  constraints: z.array(ArgumentConstraintSchema).optional(),
  idempotency: z.strictObject({ key: z.string(), fingerprint: z.string() }).nullable(),
  requestId: z.string(),
  /** Of a call that waited elsewhere under this id; a new one without it. */
  executionId: ExecutionIdSchema.optional(),
  /** The program that makes the call. */
  parentId: ExecutionIdSchema.optional(),
  /** When the front received the request, in milliseconds since the epoch. */
  admittedMs: z.number(),
  /** Where its end is told. */
  callback: SealedCallbackSchema.nullable().optional(),
});
export type ExecuteInput = z.infer<typeof ExecuteInputSchema>;

export type ReceiptExport = z.infer<typeof ReceiptExportSchema>;

export interface ReceiptPage {
  /** Positions in the two chains behind which the page begins, that of the hosts and that of the edge. */
  after: number;
  edge_after: number;
  /** Of each chain. */
  limit: number;
}

export interface ApprovalDecision {
  status: Exclude<ApprovalStatus, 'waiting'>;
  /** What who decided said. */
  reason: string | null;
}

export interface ExecutionQuery {
  cursor?: string | undefined;
  limit: number;
  /** Whether the calls of programs are in it too. */
  inner?: boolean;
}

export interface ExecutionPage {
  executions: Execution[];
  next_cursor: string | null;
}

/** Headers of the requests that are served by `fetch`, because their answer is a stream or a socket. */
export const INTERNAL_HEADERS = {
  /** JSON of the caller, every character beyond ASCII escaped. */
  caller: 'sandgate-caller',
  lastEventId: 'last-event-id',
} as const;

/** Of a request for a transfer: what is asked, and what is known before the bytes of the answer, both as JSON. */
export const FILE_HEADERS = {
  request: 'sandgate-file-request',
  /** To what a file is held, as JSON; left out where to nothing. */
  constraints: 'sandgate-file-constraints',
  head: 'sandgate-transfer-head',
  /** How long a file is outside of which a range lies. */
  size: 'sandgate-file-size',
} as const;

export const INTERNAL_PATHS = {
  execute: '/execute',
  events: '/executions/',
  link: '/link',
  files: '/files',
  terminal: '/terminal',
  sessionEvents: '/events',
} as const;

/** What a host says of a session over its control link. */
export interface HostNotice {
  hostId: string;
  epoch: number;
}

/** What is told of a call of the session that somebody has to approve. */
export type ApprovalFacts = Extract<SessionEventFacts, { type: `approval.${string}` }>;

export interface AwaitedCall {
  execution: Execution;
  /** What was said of it last. */
  progress: ToldProgress | null;
}

export interface SessionPort {
  /** Resolves when the session is usable. Called again with the same id by the same caller it joins. */
  create(input: CreateInput): Promise<Outcome<Session>>;
  /** The session that a create with this id has made or is making; null where there is none. */
  join(caller: Caller): Promise<Outcome<Session | null>>;
  describe(caller: Caller): Promise<Outcome<Session>>;
  /** Changes what may be changed; the rest stays. */
  update(caller: Caller, update: UpdateSession): Promise<Outcome<Session>>;
  /** Resolves when the session is gone; the second time it is `not_found`. */
  destroy(caller: Caller): Promise<Outcome<null>>;
  /** Resolves at the end of the execution, or at once when it is detached. */
  execute(input: ExecuteInput): Promise<Outcome<Execution>>;
  /** Takes a call in that somebody will wait for: resolves when it has its place in the queue. */
  accept(input: ExecuteInput): Promise<Outcome<Execution>>;
  /** Resolves at the end of an execution, at once where it has ended. */
  wait(caller: Caller, executionId: string): Promise<Outcome<Execution>>;
  /** Resolves when the program has its place in the queue. */
  beginProgram(input: ExecuteInput, facts: ProgramFacts): Promise<Outcome<Program>>;
  program(caller: Caller, programId: string): Promise<Outcome<Program>>;
  /** Resolves when the program has ended, or waits for its caller. */
  waitProgram(caller: Caller, programId: string): Promise<Outcome<Program>>;
  /** From the approvals of the tenant: what became of a call of a program that waits for one. */
  approvalDecided(caller: Caller, executionId: string, decision: ApprovalDecision): Promise<Outcome<null>>;
  answerCalls(caller: Caller, programId: string, results: ToolResult[]): Promise<Outcome<null>>;
  /** Null where the call may be made; otherwise what became of the first with its key. */
  beginEdgeCall(caller: Caller, call: EdgeCall): Promise<Outcome<Execution | null>>;
  /** Makes a call of the gateway that nobody waits for; gives it as it is then. */
  makeEdgeCall(caller: Caller, call: DetachedEdgeCall): Promise<Outcome<Execution>>;
  /** Gives its receipt. */
  endEdgeCall(caller: Caller, execution: Execution): Promise<Outcome<Envelope | null>>;
  /** What is said of a call at the edge while it is made; not kept. */
  edgeCallProgressed(caller: Caller, executionId: string, progress: EdgeProgress): Promise<Outcome<null>>;
  /** Of a call that no host runs: resolves at its end or at news of it, or after that time with how it stands. */
  waitCall(caller: Caller, executionId: string, waitMs: number): Promise<Outcome<AwaitedCall>>;
  listExecutions(caller: Caller, page: ExecutionQuery): Promise<Outcome<ExecutionPage>>;
  getExecution(
    caller: Caller,
    executionId: string,
    encoding?: 'utf-8' | 'base64',
  ): Promise<Outcome<Execution>>;
  /**
   * The same; one with a key also when the session has ended, as long as the key is answered with it, and at its end, or
   * after that time with how it stands.
   */
  recall(caller: Caller, executionId: string, waitMs: number): Promise<Outcome<Execution>>;
  /** How much of a stream can be read from its beginning on. */
  outputExtent(caller: Caller, executionId: string, stream: StreamName): Promise<Outcome<OutputExtent>>;
  /** A piece of it that holds the byte at this place. */
  outputAt(
    caller: Caller,
    executionId: string,
    place: { stream: StreamName; at: number },
  ): Promise<Outcome<OutputAt>>;
  /** Tool of an execution: what its scope is judged by. */
  toolOf(caller: Caller, executionId: string): Promise<Outcome<string>>;
  receipt(caller: Caller, executionId: string): Promise<Outcome<Envelope>>;
  receipts(caller: Caller, page: ReceiptPage): Promise<Outcome<ReceiptExport>>;
  stdin(caller: Caller, executionId: string, bytes: Uint8Array, eof: boolean): Promise<Outcome<null>>;
  /** Stops one execution, or whatever runs. */
  interrupt(caller: Caller, executionId: string | null): Promise<Outcome<{ execution_id: string | null }>>;
  /** Resolves when everything of the session stands still; at once where it does. */
  pause(caller: Caller): Promise<Outcome<Session>>;
  /** A suspended one comes back; where no host can restore it, with its workspace alone if that is asked for. */
  resume(caller: Caller, how?: Resume): Promise<Outcome<Session>>;
  /** Moves the session into a snapshot: it holds no host then, and any call brings it back. */
  suspend(caller: Caller): Promise<Outcome<Session>>;
  /** Suspends the session and brings it back on another host, with what runs in it. */
  migrate(caller: Caller): Promise<Outcome<Session>>;
  /** Takes the session back to a snapshot of its own, or to where it was before an execution. */
  rollBack(caller: Caller, to: Rollback): Promise<Outcome<Session>>;
  /** A snapshot of the session, which goes on. */
  snapshot(caller: Caller, wish: SnapshotWish): Promise<Outcome<SnapshotFacts>>;
  /** What sessions that begin where this one is are made of. */
  fork(caller: Caller): Promise<Outcome<ForkPoint>>;
  /** Whether the next sandbox of the session is made of this snapshot. */
  holds(snapshotId: string): Promise<boolean>;
  /** What a snapshot is that the session has moved into, or may go back to; null where it is neither. */
  keeps(snapshotId: string): Promise<SnapshotFacts | null>;
  /** From the tenant: its limits or its webhooks are others now. */
  hearTerms(terms: AccountTerms): Promise<void>;
  /** From the approvals of the tenant; the same event again is one. */
  noteApproval(eventId: string, facts: ApprovalFacts): Promise<void>;
  /** Of a call that waited for an approval, and ended without coming here. With the same id it is one event. */
  noteUnmade(eventId: string, execution: Execution, callback: SealedCallback | null): Promise<void>;
  /** Events that were sent are delivered, or written down to be. */
  eventsTaken(eventIds: string[]): Promise<void>;
  /** From the host object: the sandbox was not made, or is gone, or the host is. */
  attachRefused(notice: HostNotice & { code: ErrorCode; detail: string }): Promise<void>;
  sandboxDestroyed(notice: HostNotice): Promise<void>;
  /** Of a host that was revoked no word is taken from here on. */
  hostLost(notice: { hostId: string; isRevoked?: boolean }): Promise<void>;
  /** Its operator wants the host empty. Resolves when the session has left it, or stays. */
  hostDraining(notice: { hostId: string }): Promise<void>;
}
