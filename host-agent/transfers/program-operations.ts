/** What each operation on terminals and background processes does with the sandbox and the bytes of its transfer. */
import { utf8 } from '../../shared/encoding.ts';
import { type Outcome, success } from '../../shared/errors.ts';
import type { LogEvent, Process, ProgramRequest, Waited } from '../../shared/program.ts';
import type { Piece } from '../sandbox/programs/output-ring.ts';
import type { BackgroundProcess, Gap, Program, SandboxPrograms } from '../sandbox/programs/port.ts';
import { NOTHING, type OperationEnd, type ProgramPlace, type ProgramRequestOf, STREAM } from './operation.ts';
import { outputBatches } from './output-batches.ts';
import { pipeProcess } from './pipe-operation.ts';
import { attachTerminal } from './terminal-operation.ts';

/** Longer lines are looked at in parts. */
const MAX_LINE_CHARACTERS = 16_384;

export async function performProgram(request: ProgramRequest, place: ProgramPlace): Promise<OperationEnd> {
  const { programs } = place;
  switch (request.operation) {
    case 'terminal_attach':
      return attachTerminal(request, place);
    case 'process_start':
      return told(place, await start(request, programs));
    case 'process_pipe':
      return pipeProcess(request, place);
    case 'process_list':
      return told(place, success({ processes: programs.processes().map(describe) }));
    case 'process_read':
      return told(place, described(programs.process(request.process_id)));
    case 'process_logs':
      return logs(request, place);
    case 'process_wait':
      return told(place, await waitFor(request, place));
    case 'process_input':
      return told(place, await input(request, programs));
    case 'process_stop':
      return told(place, await stop(request, programs));
  }
}

async function told(place: ProgramPlace, answer: Outcome<object>): Promise<OperationEnd> {
  if (!answer.ok) return answer;
  place.head(STREAM);
  await place.outgoing.push(utf8(JSON.stringify(answer.value)));
  return success(NOTHING);
}

async function start(request: ProgramRequestOf<'process_start'>, programs: SandboxPrograms) {
  const { process_id: id, command, cwd, environment, stdin = false } = request;
  return described(await programs.startProcess(id, { command, cwd, environment, stdin }));
}

async function input(
  { process_id, bytes, end }: ProgramRequestOf<'process_input'>,
  programs: SandboxPrograms,
) {
  const process = programs.process(process_id);
  if (!process.ok) return process;
  const taken = await process.value.input(Buffer.from(bytes, 'base64'), end);
  return taken.ok ? described(process) : taken;
}

async function stop({ process_id, grace_ms }: ProgramRequestOf<'process_stop'>, programs: SandboxPrograms) {
  const process = programs.process(process_id);
  if (!process.ok) return process;
  await process.value.stop(grace_ms);
  await process.value.ended;
  return described(process);
}

function described(program: Outcome<BackgroundProcess>): Outcome<Process> {
  return program.ok ? success(describe(program.value)) : program;
}

function describe(program: BackgroundProcess): Process {
  const { end, inputAt } = program;
  return {
    process_id: program.id,
    command: program.command,
    cwd: program.cwd,
    state: end === undefined ? 'running' : 'exited',
    pid: program.pid,
    exit_code: end?.exitCode ?? null,
    signal: end?.signal ?? null,
    started_at: new Date(program.startedAtMs).toISOString(),
    ended_at: end === undefined ? null : new Date(end.endedAtMs).toISOString(),
    log_bytes: program.endOffset,
    log_start: program.startOffset,
    ...(inputAt === undefined ? {} : { input_at: inputAt }),
  };
}

/** Lines of JSON, each an event. */
async function logs(request: ProgramRequestOf<'process_logs'>, place: ProgramPlace): Promise<OperationEnd> {
  const { process_id, after, stream, follow } = request;
  const found = place.programs.process(process_id);
  if (!found.ok) return found;
  const process = found.value;
  place.head(STREAM);
  const until = follow ? Number.POSITIVE_INFINITY : process.endOffset;
  const from = after ?? process.startOffset;
  if (from < until || follow) {
    for await (const batch of outputBatches(process, from, place.signal)) {
      const wanted = batch.filter((item) => 'gap' in item || stream === null || item.stream === stream);
      await say(place, wanted.map(logEvent));
      const last = batch.at(-1);
      if (last !== undefined && 'bytes' in last && last.offset + last.bytes.length >= until) break;
    }
  }
  const { end } = process;
  if (end !== undefined) await say(place, [{ type: 'exit', exit_code: end.exitCode, signal: end.signal }]);
  return success({ ...NOTHING, bytes: place.outgoing.bytes });
}

function say({ outgoing }: ProgramPlace, events: readonly LogEvent[]): Promise<void> {
  return outgoing.push(utf8(events.map((event) => `${JSON.stringify(event)}\n`).join('')));
}

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function logEvent(item: Piece | Gap): LogEvent {
  if ('gap' in item) return { type: 'gap', ...item.gap };
  const { stream, offset, bytes } = item;
  const place = { type: 'output', stream, offset, end: offset + bytes.length } as const;
  try {
    return { ...place, text: strict.decode(bytes) };
  } catch {
    return { ...place, base64: Buffer.from(bytes).toString('base64') };
  }
}

async function waitFor(
  { process_id, until, timeout_ms }: ProgramRequestOf<'process_wait'>,
  place: ProgramPlace,
): Promise<Outcome<Waited>> {
  const found = place.programs.process(process_id);
  if (!found.ok) return found;
  const process = found.value;
  const over = new AbortController();
  const timer = setTimeout(() => over.abort(), timeout_ms);
  const signal = AbortSignal.any([over.signal, place.signal]);
  let line: string | null = null;
  let reached = false;
  switch (until.kind) {
    case 'exit':
      reached = await process.endsBefore(signal);
      break;
    case 'line':
      line = await firstLine(process, until, signal);
      reached = line !== null;
      break;
    case 'port':
      void process.endsBefore(signal).then(() => over.abort());
      reached = await place.programs.listens(until.port, signal);
      break;
  }
  clearTimeout(timer);
  over.abort();
  return success({ reached, line, process: describe(process) });
}

/** The first line of either stream that has the text in it; null where the process ends before, or the time does. */
async function firstLine(
  process: Program,
  { text, after }: { text: string; after: number },
  signal: AbortSignal,
): Promise<string | null> {
  const begun = { stdout: '', stderr: '' };
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  for await (const item of process.follow(after, signal)) {
    if ('gap' in item) {
      begun.stdout = begun.stderr = '';
      continue;
    }
    const lines = (begun[item.stream] + decoder.decode(item.bytes)).split('\n');
    const rest = lines.pop() ?? '';
    // Of a line that is too long, what goes is looked at before it does.
    const isLong = rest.length > MAX_LINE_CHARACTERS;
    begun[item.stream] = isLong ? rest.slice(-MAX_LINE_CHARACTERS) : rest;
    const found = [...lines, ...(isLong ? [rest] : [])].find((line) => line.includes(text));
    if (found !== undefined) return found.slice(0, MAX_LINE_CHARACTERS);
  }
  const last = [begun.stdout, begun.stderr].find((line) => line.includes(text));
  return process.end !== undefined && last !== undefined ? last : null;
}
