/** The shell tool: each call is a bash of its own that starts where the call before ended. */
import { failure, success } from '../../../shared/errors.ts';
import { ShellArgumentsSchema } from '../../../shared/tool.ts';
import type { CarriedShell } from '../../guest-link/carried.ts';
import { type GuestResult, succeed } from '../../guest-link/failure.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import { SessionShell, type ShellCall, type ShellOutcome, shellState } from '../../guest-link/shell.ts';
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
    return shellTool(this.#shell.run({ command, onOutput: sink, stdin: stdin ? 'open' : 'closed' }), stdin);
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
    return adoptedTool(this.#shell.adopt(link, carried, io?.sink), io);
  }
}

/** The call of a shell that was adopted from a checkpoint, where there was one. */
export function adoptedTool(call: ShellCall | undefined, io: ToolIo | undefined): RunningTool | undefined {
  return call === undefined ? undefined : shellTool(Promise.resolve(succeed(call)), io?.stdin === true);
}

/** A call of a shell as a running tool. */
export function shellTool(started: Promise<GuestResult<ShellCall>>, stdin: boolean): RunningTool {
  return {
    ended: shellEnd(started),
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

async function shellEnd(started: Promise<GuestResult<ShellCall>>): Promise<ToolEnd> {
  const call = await started;
  if (!call.ok) return guestFailureEnd(call.failure);
  const outcome = await call.value.outcome;
  return outcome.ok ? endOf(outcome.value) : guestFailureEnd(outcome.failure);
}

function endOf(outcome: ShellOutcome): ToolEnd {
  return toolEnd({
    status: outcome.exitCode === 0 ? 'succeeded' : 'failed',
    exitCode: outcome.exitCode,
    signal: outcome.signal,
  });
}
