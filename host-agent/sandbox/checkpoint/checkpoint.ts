/** Takes a checkpoint of one sandbox: makes it stand still, has gVisor write it down, and says how the host stands with it. */
import { setTimeout as wait } from 'node:timers/promises';
import { type Failure, failure, type Outcome, success } from '../../../shared/errors.ts';
import type { ToolName } from '../../../shared/tool.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import type { Execution } from '../execution.ts';
import type { Freezer } from '../freezer.ts';
import type { Checkpoint, WorkspaceWish } from '../port.ts';
import type { GuestPrograms } from '../programs/guest-programs.ts';
import type { ToolPlace } from '../tools/tool.ts';
import type { SandboxTools } from '../tools/tools.ts';
import type { CarriedSandbox } from './carried.ts';
import { copyWorkspace } from './workspace-copy.ts';

/** For what is being started, stopped or answered to come to its end. */
const SETTLE_TIMEOUT_MS = 30_000;
const SETTLE_PAUSE_MS = 5;
const STAND_STILL_TIMEOUT_MS = 20_000;

export interface RunningCall {
  tool: ToolName;
  takesStdin: boolean;
  execution: Execution;
}

export interface CheckpointSubject {
  link: GuestLink;
  freezer: Freezer;
  place: ToolPlace;
  tools: SandboxTools;
  programs: GuestPrograms;
  /** Of the programs in it, of its root file, and of the user that they run as. */
  guest: string;
  root: string;
  userId: number;
  runningCalls(): readonly RunningCall[];
  isPaused(): boolean;
  /** Whatever the freezer says. */
  thaw(): void;
  freeze(): void;
  /** Writes the checkpoint; the sandbox goes on as far as gVisor is concerned. */
  save(imageDir: string): Promise<Outcome<null>>;
  destroy(): Promise<void>;
}

/** Where it fails the sandbox goes on as it was. */
export async function takeCheckpoint(
  subject: CheckpointSubject,
  imageDir: string,
  wish?: WorkspaceWish,
): Promise<Outcome<Checkpoint>> {
  const { link, freezer, tools } = subject;
  const letSleep = freezer.hold();
  // One that is kept frozen has to run for this; nothing that it does meanwhile is let out.
  if (freezer.frozen) subject.thaw();
  // While the guest still speaks: what is on its way to the host is not in the checkpoint.
  const workspace = wish === undefined ? undefined : await copyWorkspace(tools.file, wish);
  const stillness = new Stillness(subject, letSleep);
  const unsettled = await stillness.begin();
  if (unsettled !== undefined) {
    await stillness.end();
    return unsettled;
  }
  const saved = await subject
    .save(imageDir)
    .catch((error: unknown) =>
      failure('suspend_failed', error instanceof Error ? error.message : 'the checkpoint failed'),
    );
  if (!saved.ok) {
    await stillness.end();
    return failure('suspend_failed', saved.detail);
  }
  const state = await carry(subject);
  const thaw = freezer.standStill();
  return success({
    state,
    workspace,
    goOn: async () => {
      thaw();
      await stillness.end();
    },
    end: async () => {
      link.close();
      await subject.destroy();
    },
  });
}

class Stillness {
  readonly #subject: CheckpointSubject;
  readonly #letSleep: () => void;
  #calls: readonly RunningCall[] = [];

  constructor(subject: CheckpointSubject, letSleep: () => void) {
    this.#subject = subject;
    this.#letSleep = letSleep;
  }

  async begin(): Promise<Failure | undefined> {
    const { link, tools } = this.#subject;
    if (!(await this.#settled())) {
      return failure('suspend_failed', 'something is under way in the sandbox that does not come to its end');
    }
    this.#calls = this.#subject.runningCalls();
    for (const { execution } of this.#calls) execution.pause();
    const kernels = [tools.python, tools.node].flatMap(({ channelId }) => channelId ?? []);
    const stood = await link.standStill(kernels, STAND_STILL_TIMEOUT_MS);
    return stood.ok ? undefined : failure('suspend_failed', stood.failure.message);
  }

  async end(): Promise<void> {
    const { link, freezer } = this.#subject;
    await link.goOn(STAND_STILL_TIMEOUT_MS);
    if (!this.#subject.isPaused()) for (const { execution } of this.#calls) execution.resume();
    this.#letSleep();
    if (freezer.frozen) this.#subject.freeze();
  }

  /** False where it takes too long. */
  async #settled(): Promise<boolean> {
    const { link, tools, programs } = this.#subject;
    const untilMs = performance.now() + SETTLE_TIMEOUT_MS;
    for (;;) {
      const isSettled = await Promise.race([
        Promise.all([
          toolsSettled(tools),
          // A call of the file tool is short, and what is being stopped ends soon.
          ...this.#subject
            .runningCalls()
            .map(({ tool, execution }) => (tool === 'file' ? execution.finished : execution.stopped)),
        ]).then(() => true),
        wait(Math.max(0, untilMs - performance.now()), false, { ref: false }),
      ]);
      if (!isSettled || performance.now() > untilMs) return false;
      if (!link.isBusy && !programs.isBusy && !this.#isFileBusy) return true;
      await wait(SETTLE_PAUSE_MS);
    }
  }

  get #isFileBusy(): boolean {
    return this.#subject.runningCalls().some(({ tool }) => tool === 'file');
  }
}

/** Nothing of the host's own is being started or answered in it. */
export function toolsSettled({ python, node, shell, run, file }: SandboxTools): Promise<unknown> {
  return Promise.all([python, node, shell, run, file].map((tool) => tool.settled()));
}

export type CarriedSubject = Pick<
  CheckpointSubject,
  'link' | 'place' | 'tools' | 'programs' | 'guest' | 'root' | 'userId' | 'runningCalls'
>;

/** How the host stands with it; only while the guest stands still. */
export async function carry(subject: CarriedSubject): Promise<CarriedSandbox> {
  const { link, place, tools, programs, guest, root, userId } = subject;
  return {
    v: 1,
    guest,
    root,
    user_id: userId,
    place: { cwd: place.cwd, environment: [...place.environment] },
    link: link.carry(),
    tools: {
      python: tools.python.carry(),
      node: tools.node.carry(),
      shell: await tools.shell.carry(),
      run: await tools.run.carry(),
      file: tools.file.carry(),
    },
    programs: programs.carry(),
    calls: subject.runningCalls().map(({ tool, takesStdin, execution }) => ({
      tool,
      takes_stdin: takesStdin,
      timeout_left_ms: execution.timeoutLeftMs,
      cpu_ms: execution.cpuMs,
    })),
  };
}
