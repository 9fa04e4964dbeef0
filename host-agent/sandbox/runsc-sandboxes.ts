/** Sandboxes on gVisor: admits, starts, finds again and removes them. */
import { readFile, statfs } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import type { Cgroups } from '../cgroup/cgroups.ts';
import { GuestLink } from '../guest-link/guest-link.ts';
import { collectBounded } from '../process/bounded-output.ts';
import { admit, availableMemory } from './admission.ts';
import { type Engine, openEngine, type RunscSandboxesOptions } from './engine.ts';
import type { OciResources } from './oci.ts';
import type { Sandbox, SandboxConfig, Sandboxes, SandboxRuntimeFacts } from './port.ts';
import { removeLeftovers } from './reconcile.ts';
import { removeRemains } from './remains.ts';
import { RunscSandbox, type SandboxEnd } from './sandbox.ts';
import { BASE_ENVIRONMENT, buildResources, buildSpec, WORKSPACE } from './spec.ts';
import { StartGate } from './start-gate.ts';
import { FileTool } from './tools/file.ts';
import { nodeTool } from './tools/node.ts';
import { pythonTool } from './tools/python.ts';
import { ShellTool } from './tools/shell.ts';
import { UserIds } from './user-ids.ts';

export type { RunscSandboxesOptions } from './engine.ts';

const READY_TIMEOUT_MS = 20_000;
const MAX_STDERR_BYTES = 16 * 1024;
const SANDBOX_ID = /^[a-z0-9][a-z0-9-]{0,63}$/;

export class RunscSandboxes implements Sandboxes {
  readonly facts: SandboxRuntimeFacts;
  readonly #options: RunscSandboxesOptions;
  readonly #engine: Engine;
  readonly #live = new Map<string, RunscSandbox>();
  /** Memory limits of the sandboxes that are starting, by id. */
  readonly #starting = new Map<string, number>();
  readonly #startsInFlight = new Set<Promise<unknown>>();
  readonly #userIds = new UserIds();
  readonly #startGate = new StartGate(Math.max(2, availableParallelism()));
  #stopped = false;

  private constructor(options: RunscSandboxesOptions, engine: Engine) {
    this.#options = options;
    this.#engine = engine;
    this.facts = engine.facts;
  }

  static async open(options: RunscSandboxesOptions): Promise<Outcome<RunscSandboxes>> {
    const engine = await openEngine(options);
    return engine.ok ? success(new RunscSandboxes(options, engine.value)) : engine;
  }

  async reconcile(): Promise<{ removed: string[] }> {
    return { removed: await removeLeftovers(this.#engine) };
  }

  async start(config: SandboxConfig): Promise<Outcome<Sandbox>> {
    if (!SANDBOX_ID.test(config.sandboxId)) throw new TypeError('a sandbox id was expected');
    const admitted = await this.#admit(config);
    if (!admitted.ok) return admitted;
    try {
      const image = await this.#engine.images.findByDigest(config.imageDigest);
      if (!image.ok) return image;
      const starting = this.#startGate.run(() => this.#start(config, image.value.rootfsPath));
      this.#startsInFlight.add(starting);
      return await starting.finally(() => this.#startsInFlight.delete(starting));
    } finally {
      this.#starting.delete(config.sandboxId);
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.allSettled(this.#startsInFlight);
    await Promise.all([...this.#live.values()].map((sandbox) => sandbox.destroy()));
    await this.#engine.cgroups.removeParent();
  }

  async #admit({ sandboxId, limits }: SandboxConfig): Promise<Outcome<null>> {
    const meminfo = await readFile('/proc/meminfo', 'utf8');
    const disk = await statfs(this.#engine.bundles.dir);
    if (this.#stopped) return failure('host_full', 'the host is stopping');
    if (this.#live.has(sandboxId) || this.#starting.has(sandboxId)) {
      return failure('sandbox_failed', 'a sandbox with this id lives already');
    }
    const admitted = admit({
      limits,
      caps: this.#options.caps,
      sandboxes: new Set([...this.#live.keys(), ...this.#starting.keys()]).size,
      capacity: this.#options.capacity,
      availableMemoryBytes: availableMemory(meminfo),
      promisedMemoryBytes: [...this.#starting.values()].reduce((sum, bytes) => sum + bytes, 0),
      availableDiskBytes: disk.bavail * disk.bsize,
    });
    if (admitted.ok) this.#starting.set(sandboxId, limits.memory_bytes);
    return admitted;
  }

  async #start(config: SandboxConfig, rootfsPath: string): Promise<Outcome<Sandbox>> {
    const { sandboxId } = config;
    const userId = this.#userIds.take();
    try {
      await this.#prepare(config, rootfsPath, userId);
    } catch (error: unknown) {
      await this.#remove(sandboxId, userId);
      return this.#notStarted(sandboxId, error instanceof Error ? error.message : 'it could not be prepared');
    }
    const { sandbox, link } = this.#launch(config, userId);
    this.#live.set(sandboxId, sandbox);
    const ready = await link.ready(READY_TIMEOUT_MS);
    if (!ready.ok || this.#stopped) {
      await sandbox.destroy();
      return this.#notStarted(sandboxId, ready.ok ? 'the host is stopping' : ready.failure.message);
    }
    sandbox.warm();
    return success(sandbox);
  }

  async #prepare({ sandboxId, limits }: SandboxConfig, rootfsPath: string, userId: number): Promise<void> {
    const { bundles, cgroups, guestDir } = this.#engine;
    const storage = bundles.storageOf(sandboxId);
    const cgroupPath = cgroups.pathOf(sandboxId);
    const spec = buildSpec({ limits, rootfsPath, guestDir, storage, userId, cgroupPath });
    await bundles.write(sandboxId, spec);
    await cgroups.create(sandboxId, cgroupLimits(buildResources(limits)));
  }

  #launch(config: SandboxConfig, userId: number): { sandbox: RunscSandbox; link: GuestLink } {
    const { runsc, bundles, cgroups } = this.#engine;
    const { sandboxId } = config;
    const process = runsc.run(sandboxId, bundles.pathOf(sandboxId));
    const link = new GuestLink({ stdin: process.stdin, stdout: process.stdout });
    const place = { cwd: WORKSPACE, environment: environmentOf(config) };
    const sandbox = new RunscSandbox({
      id: sandboxId,
      process,
      stderr: collectBounded(process.stderr, MAX_STDERR_BYTES),
      link,
      tools: {
        python: pythonTool(link, place),
        node: nodeTool(link, place),
        shell: new ShellTool(link, place),
        file: new FileTool(link, place),
      },
      host: {
        usage: () => cgroups.usage(sandboxId),
        resetPeak: () => cgroups.resetPeak(sandboxId),
        kill: () => cgroups.kill(sandboxId),
        cleanUp: (end) => this.#cleanUp(sandboxId, userId, end),
      },
    });
    return { sandbox, link };
  }

  /** The reason may name places of this host, so it goes to the log only. */
  #notStarted(sandboxId: string, detail: string): Failure {
    this.#options.log.error({ event: 'sandbox_not_started', sandbox_id: sandboxId, detail });
    return failure('sandbox_failed', 'the sandbox did not start');
  }

  async #cleanUp(
    sandboxId: string,
    userId: number,
    { reason, exitCode, lastLine }: SandboxEnd,
  ): Promise<void> {
    if (reason !== 'destroyed') {
      const panic = await this.#engine.bundles.panic(sandboxId);
      const detail = `exit ${exitCode ?? 'by signal'}: ${panic ?? lastLine()}`;
      this.#options.log.warn({ event: 'sandbox_lost', sandbox_id: sandboxId, reason, detail });
    }
    await this.#remove(sandboxId, userId);
  }

  /** A sandbox that cannot be removed keeps its place and its user: what is left of it still takes room. */
  async #remove(sandboxId: string, userId: number): Promise<void> {
    if (!(await removeRemains(this.#engine, sandboxId, this.#options.log))) return;
    this.#userIds.release(userId);
    this.#live.delete(sandboxId);
  }
}

function cgroupLimits({ memory, cpu, pids }: OciResources): Parameters<Cgroups['create']>[1] {
  return {
    memoryBytes: memory.limit,
    cpuQuotaUs: cpu.quota,
    cpuPeriodUs: cpu.period,
    cpuShares: cpu.shares,
    pids: pids.limit,
  };
}

function environmentOf({ environment }: SandboxConfig): string[] {
  return Object.entries({ ...BASE_ENVIRONMENT, ...environment }).map(([name, value]) => `${name}=${value}`);
}
