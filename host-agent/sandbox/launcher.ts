/** Makes one sandbox: its folder, its control group, its process and its tools; and removes what is left at its end. */
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import type { ResourceLimits } from '../../shared/session.ts';
import type { CgroupLimits } from '../cgroup/cgroups.ts';
import { GuestLink, type GuestPipes } from '../guest-link/guest-link.ts';
import type { RootFile } from '../images/root/root-file.ts';
import type { Log } from '../logging/log.ts';
import { collectBounded } from '../process/bounded-output.ts';
import type { SpawnedProcess } from '../process/spawn.ts';
import type { CarriedSandbox } from './checkpoint/carried.ts';
import { carry, toolsSettled } from './checkpoint/checkpoint.ts';
import type { Engine } from './engine.ts';
import { ServedFiles } from './files/served-files.ts';
import { Freezer } from './freezer.ts';
import type { HeldSandbox } from './held/find-held.ts';
import { removeHeldState, type SandboxOwner, writeHeldState } from './held/held-state.ts';
import { Rest } from './held/rest.ts';
import type { OciResources } from './oci.ts';
import { GuestPrograms } from './programs/guest-programs.ts';
import { removeRemains } from './remains.ts';
import { RunscSandbox, type SandboxEnd, type SandboxParts } from './sandbox.ts';
import { buildResources, buildSpec, WORKSPACE } from './spec.ts';
import { FileTool } from './tools/file.ts';
import { nodeTool } from './tools/node.ts';
import { pythonTool } from './tools/python.ts';
import { RunTool } from './tools/run/run.ts';
import { ShellTool } from './tools/shell.ts';
import type { ToolPlace } from './tools/tool.ts';
import { UserIds } from './user-ids.ts';

const READY_TIMEOUT_MS = 20_000;
const COUNT_TIMEOUT_MS = 2_000;
const CHECKPOINT_TIMEOUT_MS = 180_000;
const MAX_STDERR_BYTES = 16 * 1024;
/** Of a sandbox that nobody waits for yet, where one that somebody uses has 1024 a CPU. */
const AHEAD_CPU_SHARES = 32;

export interface LaunchRequest {
  sandboxId: string;
  root: RootFile;
  limits: ResourceLimits;
  /** `NAME=value`, each. */
  environment: readonly string[];
  /** Given where nobody waits for it: it boots when the others leave CPU, and python loads these modules. */
  ahead?: { imports: readonly string[] };
}

export interface RestoredParts {
  sandbox: RunscSandbox;
  parts: SandboxParts;
}

interface PartsRequest {
  sandboxId: string;
  /** Id of its root file. */
  root: string;
  userId: number;
  place: ToolPlace;
  imports?: readonly string[];
}

export class Launcher {
  readonly #engine: Engine;
  readonly #log: Log;
  readonly #live = new Map<string, RunscSandbox>();
  readonly #userIds = new UserIds();
  readonly #restAfterMs: number;

  constructor(engine: Engine, log: Log, restAfterMs: number) {
    this.#engine = engine;
    this.#log = log;
    this.#restAfterMs = restAfterMs;
  }

  get live(): ReadonlyMap<string, RunscSandbox> {
    return this.#live;
  }

  /** The sandbox answers by then. */
  async launch(request: LaunchRequest): Promise<Outcome<RunscSandbox>> {
    const { sandboxId } = request;
    const userId = this.#userIds.take();
    try {
      await this.#prepare(request, userId);
    } catch (error: unknown) {
      await this.#remove(sandboxId, userId);
      return this.notStarted(sandboxId, error instanceof Error ? error.message : 'it could not be prepared');
    }
    const sandbox = this.#run(request, userId);
    this.#live.set(sandboxId, sandbox);
    const ready = await sandbox.link.ready(READY_TIMEOUT_MS);
    if (ready.ok) return success(sandbox);
    await sandbox.destroy();
    return this.notStarted(sandboxId, ready.failure.message);
  }

  /** The sandbox stands still: what it carries is adopted, and then it goes on. */
  async restore(
    request: LaunchRequest,
    { imageDir, state }: { imageDir: string; state: CarriedSandbox },
  ): Promise<Outcome<RestoredParts>> {
    const { sandboxId, root } = request;
    this.#userIds.share(state.user_id);
    try {
      await this.#prepare(request, state.user_id);
    } catch (error: unknown) {
      await this.#remove(sandboxId, state.user_id);
      return this.notStarted(sandboxId, error instanceof Error ? error.message : 'it could not be prepared');
    }
    const { runsc, bundles } = this.#engine;
    const process = runsc.restore(sandboxId, bundles.pathOf(sandboxId), imageDir);
    const parts = this.#parts(
      { sandboxId, root: root.id, userId: state.user_id, place: { ...state.place } },
      process,
      (pipes, freezer) => GuestLink.adopt(pipes, state.link, freezer),
    );
    const sandbox = new RunscSandbox(parts);
    this.#live.set(sandboxId, sandbox);
    return success({ sandbox, parts });
  }

  /** What a former agent left at rest: it stays so until something is wanted of it. Throws where the kernel knows it no more. */
  join({ sandboxId, state: { owner, sandbox: state } }: HeldSandbox): RunscSandbox {
    const { runsc, streamKeeper, cgroups } = this.#engine;
    const { root = '', user_id: userId, place, tools, programs } = state;
    const process = runsc.join(sandboxId, streamKeeper.join(sandboxId));
    // Its agent may have died as it was being frozen.
    cgroups.freeze(sandboxId);
    this.#userIds.share(userId);
    const parts = this.#parts({ sandboxId, root, userId, place: { ...place } }, process, (pipes, freezer) =>
      GuestLink.adopt(pipes, state.link, freezer),
    );
    const sandbox = new RunscSandbox(parts);
    this.#live.set(sandboxId, sandbox);
    const { link, tools: own } = parts;
    own.file.adopt(link, tools.file);
    own.python.adopt(link, tools.python, undefined);
    own.node.adopt(link, tools.node, undefined);
    own.shell.adopt(link, tools.shell, undefined);
    own.run.adopt(link, tools.run, undefined);
    parts.programs.adopt(programs);
    parts.rest.goOnResting(owner);
    parts.freezer.wasFrozen();
    return sandbox;
  }

  /** Of one that a former agent left and that ended before it was joined. */
  async removeEnded(sandboxId: string): Promise<void> {
    await removeRemains(this.#engine, sandboxId, this.#log);
  }

  /** Gives a sandbox that was made ahead its whole share of the CPU. */
  promote(sandboxId: string, limits: ResourceLimits): void {
    const { cgroups, io } = this.#engine;
    cgroups.setLimits(sandboxId, { ...cgroupLimits(buildResources(limits)), io });
  }

  /** The reason may name places of this host, so it goes to the log only. */
  notStarted(sandboxId: string, detail: string): Failure {
    this.#log.error({ event: 'sandbox_not_started', sandbox_id: sandboxId, detail });
    return failure('sandbox_failed', 'the sandbox did not start');
  }

  async #prepare({ sandboxId, root, limits, ahead }: LaunchRequest, userId: number): Promise<void> {
    const { bundles, cgroups, io } = this.#engine;
    const storage = bundles.storageOf(sandboxId);
    const cgroupPath = cgroups.pathOf(sandboxId);
    const cpuShares = ahead === undefined ? undefined : AHEAD_CPU_SHARES;
    const spec = buildSpec({
      hostname: sandboxId,
      limits,
      ...(cpuShares === undefined ? {} : { cpuShares }),
      rootPath: root.path,
      storage,
      userId,
      cgroupPath,
    });
    await bundles.write(sandboxId, spec);
    await cgroups.create(sandboxId, { ...cgroupLimits(buildResources(limits, cpuShares)), io });
  }

  #run({ sandboxId, root, environment, ahead }: LaunchRequest, userId: number): RunscSandbox {
    const { runsc, bundles } = this.#engine;
    const process = runsc.run(sandboxId, bundles.pathOf(sandboxId));
    const place = { cwd: WORKSPACE, environment };
    const imports = ahead?.imports ?? [];
    return new RunscSandbox(
      this.#parts(
        { sandboxId, root: root.id, userId, place, imports },
        process,
        (pipes, freezer) => new GuestLink(pipes, freezer),
      ),
    );
  }

  #parts(
    { sandboxId, root, userId, place, imports = [] }: PartsRequest,
    process: SpawnedProcess,
    linkOf: (pipes: GuestPipes, freezer: Freezer) => GuestLink,
  ): SandboxParts {
    const { runsc, cgroups, streamKeeper, guest } = this.#engine;
    const freezer = new Freezer({
      freeze: () => cgroups.freeze(sandboxId),
      thaw: () => cgroups.thaw(sandboxId),
      isQuiet: () => isQuiet(link),
      rest: { begin: () => rest.begin(), stir: () => rest.stir() },
    });
    const link = linkOf({ stdin: process.stdin, stdout: process.stdout }, freezer);
    const tools = {
      python: pythonTool(link, place, imports),
      node: nodeTool(link, place),
      shell: new ShellTool(link, place),
      file: new FileTool(link, place),
      run: new RunTool(link, place),
    };
    const programs = new GuestPrograms({ link, place });
    const carried = { link, place, tools, programs, guest, root, userId, runningCalls: () => [] };
    const rest = new Rest({
      link,
      settled: async () => {
        if (programs.isBusy) return false;
        await toolsSettled(tools);
        return streamKeeper.keep(sandboxId, process);
      },
      carry: () => carry(carried),
      write: (of, state) => this.#writeHeld(sandboxId, of, state),
      remove: () => removeHeldState(this.#engine.bundles.pathOf(sandboxId)),
    });
    return {
      id: sandboxId,
      process,
      stderr: collectBounded(process.stderr, MAX_STDERR_BYTES),
      link,
      freezer,
      place,
      tools,
      files: new ServedFiles(link, place, freezer),
      programs,
      rest,
      guest,
      root,
      userId,
      restAfterMs: this.#restAfterMs,
      host: {
        usage: () => cgroups.usage(sandboxId),
        resetPeak: () => cgroups.resetPeak(sandboxId),
        kill: () => cgroups.kill(sandboxId),
        isFrozen: () => cgroups.isFrozen(sandboxId),
        freeze: () => cgroups.freeze(sandboxId),
        thaw: () => cgroups.thaw(sandboxId),
        save: (imageDir) => runsc.checkpoint(sandboxId, imageDir, CHECKPOINT_TIMEOUT_MS),
        cleanUp: (end) => this.#cleanUp(sandboxId, userId, end),
      },
    };
  }

  #writeHeld(sandboxId: string, owner: SandboxOwner, sandbox: CarriedSandbox): void {
    const { bundles, facts } = this.#engine;
    writeHeldState(bundles.pathOf(sandboxId), { v: 1, runsc_version: facts.runscVersion, owner, sandbox });
  }

  async #cleanUp(
    sandboxId: string,
    userId: number,
    { reason, exitCode, lastLine }: SandboxEnd,
  ): Promise<void> {
    if (reason !== 'destroyed') {
      const panic = await this.#engine.bundles.panic(sandboxId);
      const how = exitCode === null ? '' : `exit ${exitCode}: `;
      const detail = `${how}${panic ?? lastLine()}`;
      this.#log.warn({ event: 'sandbox_lost', sandbox_id: sandboxId, reason, detail });
    }
    await this.#remove(sandboxId, userId);
  }

  /** A sandbox that cannot be removed keeps its place and its user: what is left of it still takes room. */
  async #remove(sandboxId: string, userId: number): Promise<void> {
    if (!(await removeRemains(this.#engine, sandboxId, this.#log))) return;
    this.#userIds.release(userId);
    this.#live.delete(sandboxId);
  }
}

function cgroupLimits({ memory, cpu, pids }: OciResources): CgroupLimits {
  return {
    memoryBytes: memory.limit,
    cpuQuotaUs: cpu.quota,
    cpuPeriodUs: cpu.period,
    cpuShares: cpu.shares,
    pids: pids.limit,
  };
}

/** A program that a call left behind goes on, so its sandbox is not frozen. */
async function isQuiet(link: GuestLink): Promise<boolean> {
  const counted = await link.countOthers(COUNT_TIMEOUT_MS);
  return counted.ok && counted.value.others === 0;
}
