/** What a call that ran at the edge looks like: the same as one that ran in a sandbox. */
import { utf8 } from '../../shared/encoding.ts';
import type { Execution, ProgramError, RichResult } from '../../shared/execution.ts';
import type { TerminalStatus } from '../../shared/lifecycle.ts';

export interface EdgeOutcome {
  status: TerminalStatus;
  text: string;
  structured: unknown;
  results: RichResult[];
  error: ProgramError | null;
}

/** What the other side says of a call under way. */
export interface EdgeProgress {
  progress: number;
  total: number | null;
  message: string | null;
}
export type OnEdgeProgress = (progress: EdgeProgress) => void;

export function edgeEnd(status: TerminalStatus): EdgeOutcome {
  return { status, text: '', structured: null, results: [], error: null };
}

export function edgeFailure(name: string, message: string): EdgeOutcome {
  return { ...edgeEnd('failed'), error: { name, message, traceback: '' } };
}

export interface EdgeCallIds {
  sessionId: string;
  executionId: string;
}

export interface EdgeCallFacts extends EdgeCallIds {
  toolName: string;
  receivedMs: number;
  startedMs: number;
}

/** As it stands before the request is made. */
export function edgeExecutionBegun(call: EdgeCallFacts): Execution {
  return {
    execution_id: call.executionId,
    session_id: call.sessionId,
    tool_name: call.toolName,
    status: 'running',
    exit_code: null,
    signal: null,
    stdout: '',
    stderr: '',
    encoding: 'utf-8',
    truncated: false,
    stdout_bytes: 0,
    stderr_bytes: 0,
    value: null,
    structured: null,
    results: [],
    error: null,
    reason: null,
    state_lost: false,
    created_at: new Date(call.receivedMs).toISOString(),
    started_at: new Date(call.startedMs).toISOString(),
    finished_at: null,
    duration_ms: null,
    timings_ms: null,
    receipt: null,
  };
}

export function edgeExecutionEnded(call: EdgeCallFacts, outcome: EdgeOutcome): Execution {
  const nowMs = Date.now();
  const durationMs = nowMs - call.startedMs;
  return {
    ...edgeExecutionBegun(call),
    status: outcome.status,
    stdout: outcome.text,
    stdout_bytes: utf8(outcome.text).length,
    structured: outcome.structured,
    results: outcome.results,
    error: outcome.error,
    finished_at: new Date(nowMs).toISOString(),
    duration_ms: durationMs,
    timings_ms: { admit: call.startedMs - call.receivedMs, place: 0, exec: durationMs },
  };
}
