/** What a sandbox asks of a tool: run once, feed, stop, and say how it ended. */
import { failure, type Outcome } from '../../../shared/errors.ts';
import type { ProgramError, RichResult } from '../../../shared/execution.ts';
import type { ShellStanding } from '../../../shared/shell-standing.ts';
import type { GuestFailure } from '../../guest-link/failure.ts';
import type { AnswerCall, OutputSink, ProgramEvents, ToolCall } from '../port.ts';

export interface ToolEnd {
  /** `lost`: the link to the guest broke, so the end was not seen; the sandbox's own end says why. */
  status: 'succeeded' | 'failed' | 'interrupted' | 'lost';
  exitCode: number | null;
  signal: string | null;
  error: ProgramError | null;
  value: string | null;
  structured: unknown;
  results: RichResult[];
  stateLost: boolean;
  /** Of the session's shell: how it stands, where the edge was not told so before. */
  shell?: ShellStanding | undefined;
}

export interface RunningTool {
  /** Never rejects. */
  ended: Promise<ToolEnd>;
  writeStdin(bytes: Uint8Array, eof: boolean): Promise<Outcome<null>>;
  /** Ends the program, gently where there is time for it, and kills what it started; `ended` resolves by then. */
  stop(cause: StopCause): Promise<void>;
  /** Of a program only. */
  answer?: AnswerCall;
}

/** Why we stop a program that has not ended by itself. */
export type StopCause = 'timeout' | 'interrupt';

/** Where the programs of a sandbox start, and with what environment. */
export interface ToolPlace {
  cwd: string;
  environment: readonly string[];
}

/** Where the output of a call goes, and whether it may be given input. */
export interface ToolIo {
  sink: OutputSink;
  stdin: boolean;
  /** Of a program: what becomes of its calls. */
  program?: ProgramEvents;
}

/** A tool of one sandbox, with what it keeps between calls. */
export interface Tool {
  /** Makes ready what a first call would otherwise wait for. */
  warm(): Promise<void>;
  /** Lets go of what was made ready in an environment that is no longer that of the sandbox, if there is such. */
  renew?(): void;
  run(argumentsJson: unknown, io: ToolIo): RunningTool;
}

const PLAIN_END: ToolEnd = {
  status: 'succeeded',
  exitCode: null,
  signal: null,
  error: null,
  value: null,
  structured: null,
  results: [],
  stateLost: false,
};

export function toolEnd(fields: Partial<ToolEnd>): ToolEnd {
  return { ...PLAIN_END, ...fields };
}

export function failedEnd(name: string, message: string, more: Partial<ToolEnd> = {}): ToolEnd {
  return toolEnd({ status: 'failed', error: { name, message, traceback: '' }, ...more });
}

/** The end of a call whose program the guest could not run or lost. */
export function guestFailureEnd(problem: GuestFailure, more: Partial<ToolEnd> = {}): ToolEnd {
  switch (problem.reason) {
    case 'link_closed':
    case 'malformed_frame':
      return toolEnd({ status: 'lost', stateLost: true });
    case 'spawn_failed':
      return failedEnd('SpawnFailed', spawnMessage(problem), more);
    case 'timeout':
      return failedEnd('StartTimeout', problem.message, more);
    case 'channel_ended':
    case 'protocol':
      return failedEnd('KernelDied', problem.message, more);
    case 'file':
    case 'limit':
      return failedEnd('LimitExceeded', problem.message, more);
  }
}

function spawnMessage(problem: GuestFailure): string {
  return problem.errno === 'EAGAIN' || problem.errno === 'ENOMEM'
    ? 'the sandbox is at its limit of processes or memory'
    : problem.message;
}

export function notRunning(): Outcome<null> {
  return failure('execution_not_running', 'the program has ended');
}

export const NO_STDIN: RunningTool['writeStdin'] = async () =>
  failure('execution_not_running', 'the call takes no input');

/** Arguments that the edge let through although they do not parse are the caller's failure, not ours. */
export function runTool(
  tool: Tool,
  call: ToolCall,
  { sink, program }: Pick<ToolIo, 'sink' | 'program'>,
): RunningTool {
  try {
    const io = { sink, stdin: call.stdin ?? true };
    return tool.run(call.arguments, program === undefined ? io : { ...io, program });
  } catch {
    const end = failedEnd('InvalidArguments', `the arguments do not fit the tool ${call.tool}`);
    return { ended: Promise.resolve(end), writeStdin: NO_STDIN, stop: async () => undefined };
  }
}
