/** XAgent's shells that go on between calls: each is a background process with an open input, and its number is its pid. */
import { toBase64, utf8 } from '../../../shared/encoding.ts';
import { newId } from '../../../shared/ids.ts';
import {
  type LogEvent,
  MAX_PROCESS_INPUT_BYTES,
  type Process,
  ProcessListSchema,
  ProcessSchema,
  WaitedSchema,
} from '../../../shared/program.ts';
import type { OwnSession } from '../../calls/own-session.ts';
import { askProcess, processLogs } from '../../calls/process-call.ts';
import { invalid } from '../../middleware/body.ts';
import { Refusal } from '../../middleware/refusal.ts';
import { reply } from '../../routing/reply.ts';
import { detailReply } from '../adapter-route.ts';

export interface ShellCall {
  command: string;
  runAsync: boolean;
  shellId: number | undefined;
  kill: boolean;
}

export const SHELL_TOOL = 'shell_command_executor';
/** By this they are told from the other background processes of a session. */
const SHELL_COMMAND = 'exec bash # shell of XAgent';
/** As long as theirs give a command that is waited for. */
const TIMEOUT_MS = 300_000;
const LOOK_MS = 1_000;
/** How long the first output of what runs on is waited for, and how long it may go on before the call answers. */
const SILENT_MS = 35_000;
const TALKING_MS = 5_000;
const FAILED = 500;
/** Theirs for "not yet": the client makes the call that stands in the answer. */
const NOT_READY = 450;

/** What a command wrote, as their model reads it. */
export function displayOf({ stdout, stderr }: { stdout: string; stderr: string }): string {
  const streams = [stdout === '' ? '' : `\nstdout:\n${stdout}`, stderr === '' ? '' : `\nstderr:\n${stderr}`];
  return streams.join('');
}

export async function callShell(session: OwnSession, call: ShellCall): Promise<Response> {
  const shell = call.shellId === undefined ? await start(session) : await find(session, call.shellId);
  if (shell === undefined) return closed(`there is no shell ${call.shellId}`);
  // A call may come when what the one before it began has written more: nothing of it is left out.
  const from = shell.input_at ?? 0;
  const input = call.command === '' || call.command.endsWith('\n') ? call.command : `${call.command}\n`;
  if (input !== '' && !(await write(session, shell, { input, end: !call.runAsync })))
    return closed(`the shell ${shell.pid} takes no more commands`);
  return call.runAsync
    ? runsOn(session, shell, { from, kill: call.kill })
    : ended(session, shell, { from, call });
}

async function start(session: OwnSession): Promise<Process> {
  return askProcess(session, ProcessSchema, {
    operation: 'process_start',
    process_id: newId('prc'),
    command: SHELL_COMMAND,
    cwd: null,
    environment: {},
    stdin: true,
  });
}

/** The one that runs, where an ended one had the same number. */
async function find(session: OwnSession, shellId: number): Promise<Process | undefined> {
  const { processes } = await askProcess(session, ProcessListSchema, { operation: 'process_list' });
  const named = processes.filter(({ command, pid }) => command === SHELL_COMMAND && pid === shellId);
  return named.find(({ state }) => state === 'running') ?? named.at(-1);
}

/** False where its input was closed before. */
async function write(
  session: OwnSession,
  { process_id }: Process,
  { input, end }: { input: string; end: boolean },
): Promise<boolean> {
  const bytes = utf8(input);
  if (bytes.length > MAX_PROCESS_INPUT_BYTES)
    throw invalid([{ path: 'body.arguments.command', expected: `at most ${MAX_PROCESS_INPUT_BYTES} bytes` }]);
  try {
    const request = { operation: 'process_input', process_id, bytes: toBase64(bytes), end } as const;
    await askProcess(session, ProcessSchema, request);
    return true;
  } catch (error: unknown) {
    if (error instanceof Refusal && error.failure.code === 'execution_not_running') return false;
    throw error;
  }
}

async function runsOn(
  session: OwnSession,
  shell: Process,
  { from, kill }: { from: number; kill: boolean },
): Promise<Response> {
  const looked = await firstOutput(session, shell, from);
  const last = kill ? await stop(session, shell) : looked;
  const data = { shell_id: shell.pid, display: await display(session, shell, from) };
  if (last.state === 'running')
    return reply(200, {
      type: 'simple',
      data: { ...data, status: 'the shell runs on, without a return code yet' },
    });
  const status = kill ? 'the shell was killed' : 'the shell has ended';
  return reply(200, { type: 'simple', data: { ...data, ReturnCode: returnCodeOf(last), status } });
}

/** Until what it writes comes to a rest, or it has ended. */
async function firstOutput(session: OwnSession, shell: Process, from: number): Promise<Process> {
  const beganMs = Date.now();
  let seenBytes = shell.log_bytes;
  for (;;) {
    const looked = await exitWithin(session, shell, LOOK_MS);
    const tookMs = Date.now() - beganMs;
    const hasWritten = looked.log_bytes > from;
    const isAtRest = hasWritten && looked.log_bytes === seenBytes;
    if (looked.state === 'exited' || isAtRest || tookMs >= (hasWritten ? TALKING_MS : SILENT_MS))
      return looked;
    seenBytes = looked.log_bytes;
  }
}

async function ended(
  session: OwnSession,
  shell: Process,
  { from, call }: { from: number; call: ShellCall },
): Promise<Response> {
  const mayEnd = call.command !== '' || !call.kill;
  // What was begun before may be at its end, and then so is its input.
  if (call.command === '' && mayEnd) await write(session, shell, { input: '', end: true });
  const looked = mayEnd ? await exitWithin(session, shell, TIMEOUT_MS) : shell;
  const last = call.kill ? await stop(session, shell) : looked;
  if (last.state === 'running') {
    const again = { type: 'retry', next_calling: SHELL_TOOL, arguments: { shell_id: shell.pid } };
    return detailReply(NOT_READY, again);
  }
  const data = { ReturnCode: returnCodeOf(last), display: await display(session, shell, from) };
  return last.exit_code === 0 || call.kill ? reply(200, { type: 'simple', data }) : detailReply(FAILED, data);
}

async function exitWithin(session: OwnSession, { process_id }: Process, timeoutMs: number): Promise<Process> {
  const request = {
    operation: 'process_wait',
    process_id,
    until: { kind: 'exit' },
    timeout_ms: timeoutMs,
  } as const;
  return (await askProcess(session, WaitedSchema, request)).process;
}

function stop(session: OwnSession, { process_id }: Process): Promise<Process> {
  return askProcess(session, ProcessSchema, { operation: 'process_stop', process_id, grace_ms: 0 });
}

async function display(session: OwnSession, { process_id }: Process, after: number): Promise<string> {
  const { events } = await processLogs(session, { process_id, after, stream: null });
  return displayOf({ stdout: textOf(events, 'stdout'), stderr: textOf(events, 'stderr') });
}

function textOf(events: readonly LogEvent[], stream: 'stdout' | 'stderr'): string {
  return events
    .map((event) => (event.type === 'output' && event.stream === stream ? (event.text ?? '\ufffd') : ''))
    .join('');
}

/** As Python gives it: a signal by its name, where there is no code. */
function returnCodeOf({ exit_code, signal }: Process): number | string | null {
  return exit_code ?? signal;
}

function closed(reason: string): Response {
  return detailReply(FAILED, { Error: `${reason}: it has ended, or never was` });
}
