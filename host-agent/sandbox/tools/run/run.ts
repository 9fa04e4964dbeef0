/** The tool `run`: a file in any language that the image has. It asks what the file is, and then becomes its program. */
import { type RunArguments, RunArgumentsSchema } from '../../../../shared/tool.ts';
import type { CarriedShell } from '../../../guest-link/carried.ts';
import type { GuestResult } from '../../../guest-link/failure.ts';
import type { GuestLink } from '../../../guest-link/guest-link.ts';
import { SessionShell, type ShellCall, shellState } from '../../../guest-link/shell.ts';
import { adoptedTool, shellTool } from '../shell.ts';
import {
  failedEnd,
  guestFailureEnd,
  notRunning,
  type RunningTool,
  type Tool,
  type ToolEnd,
  type ToolIo,
  type ToolPlace,
  toolEnd,
} from '../tool.ts';
import { parseProbe, planRun, probeCommand } from './plan.ts';

const MAX_PROBE_BYTES = 16 * 1024;

export class RunTool implements Tool {
  readonly #shell: SessionShell;
  readonly #place: ToolPlace;
  #starting: Promise<unknown> = Promise.resolve();

  constructor(link: GuestLink, place: ToolPlace) {
    this.#place = place;
    this.#shell = new SessionShell(link, {
      state: shellState(place.cwd, place.environment),
      home: place.cwd,
      keepsSpare: false,
    });
  }

  /** Most sessions never run one. */
  async warm(): Promise<void> {}

  run(argumentsJson: unknown, io: ToolIo): RunningTool {
    const given = RunArgumentsSchema.parse(argumentsJson);
    const start = new Start(given, (command, onOutput, stdin) => {
      // Each program begins as the first one did: what a shell leaves behind is the business of `shell`.
      this.#shell.state = shellState(this.#place.cwd, this.#place.environment);
      return this.#shell.run({ command, onOutput, stdin });
    });
    const running = start.begin(io);
    this.#starting = start.started;
    return running;
  }

  async settled(): Promise<void> {
    await this.#starting;
    await this.#shell.settled();
  }

  carry(): Promise<CarriedShell> {
    return this.#shell.carry();
  }

  /** Goes on from a checkpoint; gives the program that runs there, whose output goes to the sink. */
  adopt(link: GuestLink, carried: CarriedShell, io: ToolIo | undefined): RunningTool | undefined {
    return adoptedTool(this.#shell.adopt(link, carried, io?.sink), io);
  }
}

type Launch = (
  command: string,
  onOutput: ToolIo['sink'],
  stdin: 'open' | 'closed',
) => Promise<GuestResult<ShellCall>>;

class Start {
  readonly #given: RunArguments;
  readonly #launch: Launch;
  readonly #started = Promise.withResolvers<RunningTool | ToolEnd>();
  readonly #stopped = Promise.withResolvers<'stopped'>();
  #probe: ShellCall | undefined;

  constructor(given: RunArguments, launch: Launch) {
    this.#given = given;
    this.#launch = launch;
  }

  /** Settles when the program runs, or does not. */
  get started(): Promise<unknown> {
    return this.#started.promise;
  }

  begin(io: ToolIo): RunningTool {
    void this.#start(io).then(this.#started.resolve, () =>
      this.#started.resolve(failedEnd('InternalError', 'the host failed to start the program')),
    );
    const started = this.#started.promise;
    const ended = started.then((running) => ('ended' in running ? running.ended : running));
    return {
      ended,
      writeStdin: async (bytes, eof) => {
        const running = await started;
        return 'ended' in running ? running.writeStdin(bytes, eof) : notRunning();
      },
      stop: async (cause) => {
        this.#stopped.resolve('stopped');
        await this.#probe?.stop(0);
        const running = await started;
        if ('ended' in running) await running.stop(cause);
      },
    };
  }

  async #start({ sink, stdin }: ToolIo): Promise<RunningTool | ToolEnd> {
    const probed = await this.#runProbe();
    if ('end' in probed) return probed.end;
    const probe = parseProbe(probed.output);
    if (probe === undefined) return failedEnd('InternalError', 'the sandbox did not say what the file is');
    const plan = planRun(this.#given, probe);
    if (!plan.ok) return plan.end;
    const given = this.#given.stdin;
    const takesInput = given !== undefined || stdin;
    const call = await this.#launch(plan.command, sink, takesInput ? 'open' : 'closed');
    if (given !== undefined && call.ok) {
      void call.value.writeStdin(new TextEncoder().encode(given));
      call.value.closeStdin();
    }
    return shellTool(Promise.resolve(call), stdin && given === undefined);
  }

  async #runProbe(): Promise<{ output: string } | { end: ToolEnd }> {
    let output = '';
    const call = await this.#launch(
      probeCommand(this.#given.path),
      async (stream, bytes) => {
        if (stream === 'stdout' && output.length < MAX_PROBE_BYTES)
          output += Buffer.from(bytes).toString('latin1');
      },
      'closed',
    );
    if (!call.ok) return { end: guestFailureEnd(call.failure) };
    this.#probe = call.value;
    const outcome = await Promise.race([call.value.outcome, this.#stopped.promise]);
    this.#probe = undefined;
    if (outcome === 'stopped') return { end: toolEnd({ status: 'interrupted' }) };
    return outcome.ok ? { output } : { end: guestFailureEnd(outcome.failure) };
  }
}
