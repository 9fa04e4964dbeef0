/** The states of a session and of an execution, and the only moves between them. */
import * as z from 'zod';
import { type Failure, failure, type Outcome, success } from './errors.ts';

export const SessionStateSchema = z.enum([
  'creating',
  'running',
  'paused',
  'suspended',
  'error',
  'destroying',
  'destroyed',
]);
export type SessionState = z.infer<typeof SessionStateSchema>;

const SESSION_MOVES: Record<SessionState, readonly SessionState[]> = {
  creating: ['running', 'error', 'destroying'],
  running: ['paused', 'suspended', 'error', 'destroying'],
  paused: ['running', 'suspended', 'error', 'destroying'],
  suspended: ['running', 'error', 'destroying'],
  error: ['destroying'],
  destroying: ['destroyed', 'error'],
  destroyed: [],
};

/** The state after a move, or `illegal_transition` naming both states. */
export function moveSession(from: SessionState, to: SessionState): Outcome<SessionState> {
  if (SESSION_MOVES[from].includes(to)) return success(to);
  return illegal('session', from, to);
}

export const TerminalStatusSchema = z.enum([
  'succeeded',
  'failed',
  'timeout',
  'interrupted',
  'oom',
  'crashed',
  'cancelled',
  'refused',
  'unknown',
]);
export type TerminalStatus = z.infer<typeof TerminalStatusSchema>;

export const ExecutionStatusSchema = z.enum([
  'queued',
  'granted',
  'running',
  'waiting',
  ...TerminalStatusSchema.options,
]);
export type ExecutionStatus = z.infer<typeof ExecutionStatusSchema>;

const NO_MOVES: readonly ExecutionStatus[] = [];

const EXECUTION_MOVES: Record<ExecutionStatus, readonly ExecutionStatus[]> = {
  queued: ['granted', 'cancelled', 'refused'],
  // A host's `finished` may be the first that is heard of a start after a lost link, hence the direct ends.
  granted: ['running', ...TerminalStatusSchema.options],
  running: ['waiting', 'succeeded', 'failed', 'timeout', 'interrupted', 'oom', 'crashed', 'unknown'],
  waiting: ['running', 'failed', 'timeout', 'interrupted', 'oom', 'crashed', 'unknown'],
  succeeded: NO_MOVES,
  failed: NO_MOVES,
  timeout: NO_MOVES,
  interrupted: NO_MOVES,
  oom: NO_MOVES,
  crashed: NO_MOVES,
  cancelled: NO_MOVES,
  refused: NO_MOVES,
  unknown: NO_MOVES,
};

/** The status after a move, or `illegal_transition` naming both. */
export function moveExecution(from: ExecutionStatus, to: ExecutionStatus): Outcome<ExecutionStatus> {
  if (EXECUTION_MOVES[from].includes(to)) return success(to);
  return illegal('execution', from, to);
}

const TERMINAL: ReadonlySet<ExecutionStatus> = new Set(TerminalStatusSchema.options);

export function isTerminal(status: ExecutionStatus): status is TerminalStatus {
  return TERMINAL.has(status);
}

function illegal(what: string, from: string, to: string): Failure {
  return failure('illegal_transition', `the ${what} cannot move from ${from} to ${to}`);
}
