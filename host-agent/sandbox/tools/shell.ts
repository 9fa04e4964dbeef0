/** The shell tool: each call is a bash of its own that starts where the call before ended. */
import { failure, success } from '../../../shared/errors.ts';
import type { ShellStanding } from '../../../shared/shell-standing.ts';
import { ShellArgumentsSchema } from '../../../shared/tool.ts';
import type { CarriedShell } from '../../guest-link/carried.ts';
import { type GuestResult, succeed } from '../../guest-link/failure.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import {
  isSameState,
  SessionShell,
  type ShellCall,
  type ShellOutcome,
  type ShellState,
  shellState,
} from '../../guest-link/shell.ts';
import { shellStanding } from './shell-standing.ts';
import {
  guestFailureEnd,
  NO_STDIN,
  notRunning,
  type RunningTool,
  type Tool,
  type ToolEnd,
  type ToolIo,
  type ToolPlace,
  toolEnd,
} from './tool.ts';

/** From SIGINT to SIGKILL. At its deadline a command has had its time. */
const GRACE_MS = { timeout: 0, interrupt: 2_000 } as const;

export class ShellTool implements Tool {
  readonly #shell: SessionShell;
  readonly #place: ToolPlace;
  /** What the edge was told last by this agent. */
  #told: ShellState | undefined;

  constructor(link: GuestLink, place: ToolPlace) {
    this.#place = place;
    this.#shell = new SessionShell(link, {
      state: shellState(place.cwd, place.environment),
      home: place.cwd,
    });
  }

  renew(): void {
    this.#shell.state = shellState(this.#place.cwd, this.#place.environment);
  }

  async warm(): Promise<void> {
    await this.#shell.warm();
  }

  run(argumentsJson: unknown, { sink, stdin }: ToolIo): RunningTool {
    const { command } = ShellArgumentsSchema.parse(argumentsJson);
    return shellTool(
      this.#shell.run({ command, onOutput: sink, stdin: stdin ? 'open' : 'closed' }),
      stdin,
      this.#news,
    );
  }

  settled(): Promise<void> {
    return this.#shell.settled();
  }

  /** How it stands; only while the guest stands still. */
  carry(): Promise<CarriedShell> {
    return this.#shell.carry();
  }

  /** Goes on from a checkpoint; gives the call that runs there, whose output goes to the sink. */
  adopt(link: GuestLink, carried: CarriedShell, io: ToolIo | undefined): RunningTool | undefined {
    return adoptedTool(this.#shell.adopt(link, carried, io?.sink), io, this.#news);
  }

  #news: ShellNews = ({ state }) => {
    if (this.#told !== undefined && isSameState(this.#told, state)) return undefined;
    this.#told = state;
    const { cwd, environment } = this.#place;
    return shellStanding(state, shellState(cwd, environment));
  };
}

/** Of a call that has ended: how its shell stands, where that is news. */
export type ShellNews = (outcome: ShellOutcome) => ShellStanding | undefined;

/** The call of a shell that was adopted from a checkpoint, where there was one. */
export function adoptedTool(
  call: ShellCall | undefined,
  io: ToolIo | undefined,
  news?: ShellNews,
): RunningTool | undefined {
  return call === undefined ? undefined : shellTool(Promise.resolve(succeed(call)), io?.stdin === true, news);
}

/** A call of a shell as a running tool. */
export function shellTool(
  started: Promise<GuestResult<ShellCall>>,
  stdin: boolean,
  news: ShellNews = () => undefined,
): RunningTool {
  return {
    ended: shellEnd(started, news),
    writeStdin: async (bytes, eof) => {
      if (!stdin) return NO_STDIN(bytes, eof);
      const call = await started;
      if (!call.ok) return notRunning();
      if (bytes.length > 0) {
        const written = await call.value.writeStdin(bytes);
        if (!written.ok) return failure('execution_not_running', written.failure.message);
      }
      if (eof) call.value.closeStdin();
      return success(null);
    },
    stop: async (cause) => {
      const call = await started;
      if (call.ok) await call.value.stop(GRACE_MS[cause]);
    },
  };
}

async function shellEnd(started: Promise<GuestResult<ShellCall>>, news: ShellNews): Promise<ToolEnd> {
  const call = await started;
  if (!call.ok) return guestFailureEnd(call.failure);
  const outcome = await call.value.outcome;
  return outcome.ok ? endOf(outcome.value, news) : guestFailureEnd(outcome.failure);
}

function endOf(outcome: ShellOutcome, news: ShellNews): ToolEnd {
  return toolEnd({
    status: outcome.exitCode === 0 ? 'succeeded' : 'failed',
    exitCode: outcome.exitCode,
    signal: outcome.signal,
    shell: news(outcome),
  });
}
