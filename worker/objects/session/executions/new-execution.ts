/** The records of executions that are taken in. */
import type { Relay } from '../../../../shared/grant.ts';
import { newId } from '../../../../shared/ids.ts';
import { HOST_ANSWER_GRACE_MS } from '../../../../shared/limits.ts';
import { BUILT_IN_TOOLS, type ToolName } from '../../../../shared/tool.ts';
import type { ExecuteInput } from '../port.ts';
import type { ForkedProgram } from '../programs/forked.ts';
import type { ExecutionRecord, GrantReference } from '../rows/records.ts';

/** Where one comes: its number, and the epoch in which it was accepted. */
export interface NewPlace {
  n: number;
  epoch: number;
}

/** Arguments as they travel to the host: these bytes are hashed into the grant. */
export interface Arguments {
  text: string;
  sha256: string;
}

type KnownFromTheStart =
  | 'executionId'
  | 'tool'
  | 'toolVersion'
  | 'calledAs'
  | 'argsSha256'
  | 'timeoutMs'
  | 'relay'
  | 'stdin'
  | 'encoding'
  | 'requestId';

/** One that waits for its turn. */
export function newExecution(
  place: NewPlace,
  taken: { input: ExecuteInput; tool: ToolName; arguments: Arguments; relay: Relay; rollback: boolean },
): ExecutionRecord {
  const { input, tool, arguments: given, relay, rollback } = taken;
  return {
    ...blank(place),
    executionId: input.executionId ?? newId('exe'),
    tool,
    toolVersion: BUILT_IN_TOOLS[tool].version,
    calledAs: input.calledAs ?? null,
    constraints: input.constraints === undefined || input.constraints.length === 0 ? null : input.constraints,
    parentId: input.parentId ?? null,
    arguments: given.text,
    argsSha256: given.sha256,
    timeoutMs: input.body.timeout_ms,
    relay,
    stdin: input.body.stdin ?? (relay === 'full' || input.body.detach),
    encoding: input.body.encoding,
    idempotencyKey: input.idempotency?.key ?? null,
    fingerprint: input.idempotency?.fingerprint ?? null,
    requestId: input.requestId,
    admitMs: Math.max(0, Date.now() - input.admittedMs),
    rollback,
  };
}

/** A program of the session that this one was forked from; the host goes on with it. */
export function inheritedExecution(
  place: NewPlace,
  { program, executionId, grant }: { program: ForkedProgram; executionId: string; grant: GrantReference },
): ExecutionRecord {
  const { tool, toolVersion, calledAs, argsSha256, timeoutMs, leftMs } = program;
  const nowMs = Date.now();
  return {
    ...blank(place),
    executionId,
    tool,
    toolVersion,
    calledAs,
    argsSha256,
    timeoutMs,
    relay: 'full',
    stdin: program.stdin,
    encoding: program.encoding,
    requestId: program.requestId,
    status: 'running',
    grants: [grant],
    sentAtMs: nowMs,
    deadlineAtMs: nowMs + leftMs + HOST_ANSWER_GRACE_MS,
    startedAt: new Date(nowMs).toISOString(),
  };
}

/** One of which nothing is known yet. */
function blank({ n, epoch }: NewPlace): Omit<ExecutionRecord, KnownFromTheStart> {
  return {
    n,
    constraints: null,
    parentId: null,
    arguments: null,
    status: 'queued',
    idempotencyKey: null,
    fingerprint: null,
    epoch,
    grants: [],
    createdAtMs: Date.now(),
    sentAtMs: null,
    deadlineAtMs: null,
    startedAt: null,
    finishedAt: null,
    durationMs: null,
    exitCode: null,
    signal: null,
    error: null,
    reason: null,
    stateLost: false,
    stdoutBytes: 0,
    stderrBytes: 0,
    admitMs: 0,
    placeMs: 0,
    interruptRequested: false,
    input: null,
    truncated: false,
    contentBytes: 0,
    stored: null,
    receiptSeq: null,
    rollback: false,
    rolledBack: false,
    expired: false,
  };
}
