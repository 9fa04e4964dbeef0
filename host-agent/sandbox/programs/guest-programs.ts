/** The terminals and background processes of one real sandbox: started, bounded in number, and known for a while after their end. */
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import {
  MAX_ENDED_PROGRAMS,
  MAX_PROCESSES,
  MAX_TERMINALS,
  PIPE_BUFFER_BYTES,
  PROCESS_LOG_BYTES,
  type WindowSize,
} from '../../../shared/program.ts';
import type { Channel } from '../../guest-link/channel.ts';
import type { GuestFailure } from '../../guest-link/failure.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import type { SpawnOptions } from '../../guest-link/spawn.ts';
import type { ToolPlace } from '../tools/tool.ts';
import type { CarriedProgram, CarriedPrograms } from './carried.ts';
import { GuestProgram } from './guest-program.ts';
import { GuestTerminal } from './guest-terminal.ts';
import { PipedProgram } from './piped-program.ts';
import type {
  BackgroundProcess,
  PipedProcess,
  PipeRequest,
  ProcessRequest,
  SandboxPrograms,
  Terminal,
} from './port.ts';

const TERMINAL_PROGRAM = '/sandgate/terminal';
const TERMINAL_WINDOW_BYTES = 128 * 1024;
const RELEASE_TIMEOUT_MS = 10_000;
const TERMINAL_VARIABLES = {
  TERM: 'xterm-256color',
  COLORTERM: 'truecolor',
  // The user has no entry in passwd, and the usual prompt would say so. Before the first prompt, and never again.
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is for bash to expand.
  PROMPT_COMMAND: 'PS1=${PS1/\\\\u@\\\\h/$USER}; unset PROMPT_COMMAND',
};
/** Tries a connection every tenth of a second, and ends with the first that is taken. */
const LISTENS_SCRIPT =
  'until (exec 3<>"/dev/tcp/127.0.0.1/$1" || exec 3<>"/dev/tcp/::1/$1") 2>/dev/null; do sleep 0.1; done';

interface StartOptions extends SpawnOptions {
  /** Whether somebody writes to it. */
  keepStdin?: boolean;
}

export interface GuestProgramsOptions {
  link: GuestLink;
  place: ToolPlace;
  /** The terminal's program as the guest sees it, where that is not the usual place. */
  terminalProgram?: string;
  detachedMs?: number;
}

export class GuestPrograms implements SandboxPrograms {
  readonly #options: GuestProgramsOptions;
  readonly #terminals = new Map<string, GuestTerminal>();
  readonly #processes = new Map<string, GuestProgram>();
  /** Taken and not in the maps yet. */
  #starting = { terminals: 0, processes: 0 };

  constructor(options: GuestProgramsOptions) {
    this.#options = options;
  }

  async openTerminal(id: string, size: WindowSize): Promise<Outcome<Terminal>> {
    const { place, terminalProgram = TERMINAL_PROGRAM, detachedMs } = this.#options;
    if (living(this.#terminals) + this.#starting.terminals >= MAX_TERMINALS)
      return failure('too_many_programs', `${MAX_TERMINALS} terminals of this session are open`);
    const terminal = new GuestTerminal({ id, command: 'bash', cwd: place.cwd }, detachedMs);
    this.#starting.terminals += 1;
    const started = await this.#start(terminal, {
      argv: [terminalProgram, String(size.rows), String(size.cols), 'bash', '-i'],
      cwd: place.cwd,
      environment: environmentOf(place, TERMINAL_VARIABLES),
      control: true,
      keepStdin: true,
      outputWindowBytes: TERMINAL_WINDOW_BYTES,
    });
    this.#starting.terminals -= 1;
    if (!started.ok) return started;
    this.#rememberTerminal(terminal);
    return success(terminal);
  }

  /** Whether one is being started. */
  get isBusy(): boolean {
    return this.#starting.terminals + this.#starting.processes > 0;
  }

  /** How they stand; only while the guest stands still. */
  carry(): CarriedPrograms {
    return {
      terminals: [...this.#terminals.values()].map((terminal) => terminal.carry()),
      processes: [...this.#processes.values()].map((process) => process.carry()),
    };
  }

  /** Goes on with those of a checkpoint. */
  adopt({ terminals, processes }: CarriedPrograms): void {
    const { detachedMs } = this.#options;
    for (const carried of terminals) {
      const terminal = new GuestTerminal(carried, detachedMs, carried);
      this.#claim(terminal, carried);
      this.#rememberTerminal(terminal);
    }
    for (const carried of processes) {
      const process = new GuestProgram(carried, PROCESS_LOG_BYTES, carried);
      this.#claim(process, carried);
      remember(this.#processes, process);
    }
  }

  #claim(program: GuestProgram, { channel: id }: CarriedProgram): void {
    const { link } = this.#options;
    const channel = id === null ? undefined : link.claim(id, { onOutput: program.take });
    if (channel !== undefined) this.#run(program, channel, link.hold());
  }

  #rememberTerminal(terminal: GuestTerminal): void {
    // Its programs have no terminal any more: what they left behind ends with it.
    void terminal.ended.then(() => terminal.stop(0));
    remember(this.#terminals, terminal);
  }

  terminal(id: string): Outcome<Terminal> {
    const terminal = this.#terminals.get(id);
    return terminal === undefined ? failure('not_found', 'no such terminal') : success(terminal);
  }

  async startProcess(id: string, request: ProcessRequest): Promise<Outcome<BackgroundProcess>> {
    const cwd = request.cwd ?? this.#options.place.cwd;
    const process = new GuestProgram({ id, command: request.command, cwd }, PROCESS_LOG_BYTES);
    return this.#begin(process, {
      argv: ['bash', '-c', request.command],
      cwd,
      environment: environmentOf(this.#options.place, request.environment),
      keepStdin: request.stdin ?? false,
    });
  }

  async openPipe(id: string, { argv, ...request }: PipeRequest): Promise<Outcome<PipedProcess>> {
    const cwd = request.cwd ?? this.#options.place.cwd;
    const process = new PipedProgram({ id, command: argv.join(' '), cwd }, PIPE_BUFFER_BYTES);
    return this.#begin(process, {
      argv,
      cwd,
      environment: environmentOf(this.#options.place, request.environment),
      keepStdin: true,
    });
  }

  async #begin<Kind extends GuestProgram>(process: Kind, options: StartOptions): Promise<Outcome<Kind>> {
    if (living(this.#processes) + this.#starting.processes >= MAX_PROCESSES)
      return failure('too_many_programs', `${MAX_PROCESSES} processes of this session run`);
    this.#starting.processes += 1;
    const started = await this.#start(process, options);
    this.#starting.processes -= 1;
    if (!started.ok) return started;
    remember(this.#processes, process);
    return success(process);
  }

  process(id: string): Outcome<BackgroundProcess> {
    const process = this.#processes.get(id);
    return process === undefined ? failure('not_found', 'no such process') : success(process);
  }

  processes(): readonly BackgroundProcess[] {
    return [...this.#processes.values()];
  }

  async listens(port: number, signal: AbortSignal): Promise<boolean> {
    const { link, place } = this.#options;
    const letSleep = link.hold();
    const probe = await link.spawn({
      argv: ['bash', '-c', LISTENS_SCRIPT, 'sandgate', String(port)],
      cwd: '/',
      environment: place.environment,
      muted: true,
    });
    if (!probe.ok) {
      letSleep();
      return false;
    }
    const stopped = new Promise<false>((resolve) => {
      signal.addEventListener('abort', () => resolve(false), { once: true });
      if (signal.aborted) resolve(false);
    });
    const listens = await Promise.race([
      stopped,
      probe.value.exited.then((exit) => exit.ok && exit.value.exitCode === 0),
    ]);
    await probe.value.release(RELEASE_TIMEOUT_MS);
    letSleep();
    return listens;
  }

  async #start(
    program: GuestProgram,
    { keepStdin = false, ...options }: StartOptions,
  ): Promise<Outcome<null>> {
    const { link } = this.#options;
    const letSleep = link.hold();
    const spawned = await link.spawn({ ...options, onOutput: program.take });
    if (!spawned.ok) {
      letSleep();
      return notStarted(spawned.failure);
    }
    const channel = spawned.value;
    if (!keepStdin) channel.closeStdin();
    this.#run(program, channel, letSleep);
    return success(null);
  }

  #run(program: GuestProgram, channel: Channel, letSleep: () => void): void {
    program.run(channel, letSleep);
    // What it left behind may go on: then its channel does, too.
    void channel.gone.then(() => channel.release(RELEASE_TIMEOUT_MS));
  }
}

/** One that left something behind still takes its place. */
function living(programs: ReadonlyMap<string, GuestProgram>): number {
  return [...programs.values()].filter(({ isGone }) => !isGone).length;
}

/** The oldest of those that have ended are forgotten. */
function remember<Kept extends GuestProgram>(programs: Map<string, Kept>, program: Kept): void {
  programs.set(program.id, program);
  const ended = [...programs.values()].filter(({ end }) => end !== undefined);
  for (const old of ended.slice(0, Math.max(0, ended.length - MAX_ENDED_PROGRAMS))) {
    programs.delete(old.id);
    void old.stop(0);
  }
}

function environmentOf({ environment }: ToolPlace, more: Readonly<Record<string, string>>): string[] {
  const kept = environment.filter((variable) => !(variable.slice(0, variable.indexOf('=')) in more));
  return [...kept, ...Object.entries(more).map(([name, value]) => `${name}=${value}`)];
}

function notStarted({ reason, message, errno }: GuestFailure): Outcome<never> {
  if (reason === 'spawn_failed' || reason === 'limit')
    return failure('program_not_started', errno === undefined ? message : `${errno}: ${message}`);
  return failure('sandbox_failed', message);
}
