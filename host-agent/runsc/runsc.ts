/** The only code that knows runsc's commands, flags and output: one method per subcommand. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import { argvOf, killProcess, type ListedProcess, listProcesses } from '../process/process-table.ts';
import { type CompletedProcess, run } from '../process/run.ts';
import { joinStarted, type SpawnedProcess, type StandardStreams, spawnStarter } from '../process/spawn.ts';
import { globalFlags, logFlags, PLATFORM, requireAllowed } from './flags.ts';
import { type Container, ContainerListSchema } from './output.ts';
import { KNOWN_RELEASES, parseVersion, type RunscVersion } from './versions.ts';

const COMMAND_TIMEOUT_MS = 10_000;
const MAX_OUTPUT_BYTES = 1024 * 1024;
const KILL_PAUSE_MS = 5;
/** runsc looks nothing up by name, and a tenant's environment is none of its business. */
const ENVIRONMENT = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' };

const ContainerId = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;

export class Runsc {
  readonly version: RunscVersion;
  readonly platform = PLATFORM;
  readonly #path: string;
  readonly #rootDir: string;

  private constructor(path: string, rootDir: string, version: RunscVersion) {
    this.#path = path;
    this.#rootDir = rootDir;
    this.version = version;
  }

  /** Refuses a program that is missing or of a version this driver was not checked against. */
  static async open(path: string, rootDir: string): Promise<Outcome<Runsc>> {
    const version = await readVersion(path);
    return version.ok ? success(new Runsc(path, rootDir, version.value)) : version;
  }

  /**
   * Creates and starts the container, and leaves it to itself: a runsc that waited for it would take 5 MB as long as it
   * lives. The returned process ends with the container. Its pipes are those of the container's first process, so when we
   * die that process reads the end of its input, unless somebody else keeps them.
   */
  run(id: string, bundleDir: string): SpawnedProcess {
    return this.#start(id, bundleDir, ['run']);
  }

  /** A container that a former agent started, by what leads to the streams of its first process. */
  join(id: string, streams: StandardStreams): SpawnedProcess {
    return this.#killable(requireId(id), joinStarted(streams));
  }

  /**
   * Writes a checkpoint of the container into an empty folder; afterwards it goes on. Not compressed here: the pieces of
   * it are, where it is stored.
   */
  async checkpoint(id: string, imageDir: string, timeoutMs: number): Promise<Outcome<null>> {
    const command = [
      'checkpoint',
      '--leave-running',
      '--compression=none',
      '--exclude-committed-zero-pages',
      `--image-path=${imageDir}`,
      requireId(id),
    ];
    const completed = await this.#run(command, timeoutMs);
    return succeeded(completed) ? success(null) : commandFailure('checkpoint', completed);
  }

  /** As `run`, of a container that goes on from a checkpoint. */
  restore(id: string, bundleDir: string, imageDir: string): SpawnedProcess {
    return this.#start(id, bundleDir, ['restore', `--image-path=${imageDir}`]);
  }

  async list(): Promise<Outcome<Container[]>> {
    const completed = await this.#run(['list', '--format=json']);
    if (!succeeded(completed)) return commandFailure('list', completed);
    let json: unknown;
    try {
      json = JSON.parse(completed.stdout);
    } catch {
      return failure('sandbox_failed', 'runsc list printed no JSON');
    }
    const parsed = ContainerListSchema.safeParse(json);
    if (parsed.success) return success(parsed.data);
    const issue = parsed.error.issues[0];
    return failure('sandbox_failed', `runsc list: ${issue?.path.join('.') ?? ''} ${issue?.message ?? ''}`);
  }

  /**
   * Kills what is left of the container, and then removes what runsc knew of it. Absent counts as removed. Not by runsc's
   * own `delete`: that waits until init has reaped the last process, which some do seconds after its end.
   */
  async delete(id: string, timeoutMs: number): Promise<Outcome<null>> {
    requireId(id);
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      const killed = await this.#killProcessesOf(id);
      if (killed.length === 0) break;
      // The whole table is read once more when these are gone, for what they had started.
      while (await this.#isAnyOf(id, killed)) {
        if (performance.now() >= deadline) return failure('sandbox_failed', 'its processes do not end');
        await wait(KILL_PAUSE_MS);
      }
    }
    const names = [`${id}_sandbox:${id}.state`, `${id}_sandbox:${id}.lock`, `runsc-${id}.sock`];
    await Promise.all(names.map((name) => rm(join(this.#rootDir, name), { force: true })));
    return success(null);
  }

  /** Processes of this runsc that lost their agent: what `list` no longer shows may still be running. */
  async killProcesses(isSpared: (id: string) => boolean): Promise<void> {
    const ours = await this.#processes();
    for (const { pid, argv } of ours) if (!isSpared(argv.at(-1) ?? '')) killProcess(pid);
  }

  /** Processes that belong to a sandbox: runsc and its sentry name it last. */
  async sandboxProcesses(): Promise<{ pid: number; sandboxId: string }[]> {
    return (await this.#processes()).flatMap(({ pid, argv }) => {
      const sandboxId = argv.at(-1) ?? '';
      return ContainerId.test(sandboxId) ? [{ pid, sandboxId }] : [];
    });
  }

  async #isAnyOf(id: string, pids: readonly number[]): Promise<boolean> {
    for (const pid of pids) {
      const argv = await argvOf(pid);
      if (argv.at(-1) === id && argv.includes(this.#mark)) return true;
    }
    return false;
  }

  #start(id: string, bundleDir: string, command: string[]): SpawnedProcess {
    const argv = [...command, '--detach', `--bundle=${bundleDir}`, requireId(id)];
    return this.#killable(id, spawnStarter(this.#request(argv, logFlags(bundleDir))));
  }

  #killable(id: string, started: SpawnedProcess): SpawnedProcess {
    let isOver = false;
    void started.exited.then(() => {
      isOver = true;
    });
    return {
      ...started,
      kill: (signal) => {
        started.kill(signal);
        // Out of descriptors nothing can be listed; `delete` kills too, and says where it cannot.
        if (!isOver) void this.#killProcessesOf(id).catch(() => undefined);
      },
    };
  }

  /** Also what a runsc that was killed in the middle of a start has started already. */
  async #killProcessesOf(id: string): Promise<number[]> {
    const living = (await this.sandboxProcesses()).filter(({ sandboxId }) => sandboxId === id);
    for (const { pid } of living) killProcess(pid);
    return living.map(({ pid }) => pid);
  }

  async #processes(): Promise<ListedProcess[]> {
    return (await listProcesses()).filter(({ argv }) => argv.includes(this.#mark));
  }

  /** What runsc and its sentries have among their arguments. */
  get #mark(): string {
    return `--root=${this.#rootDir}`;
  }

  #run(command: string[], timeoutMs: number = COMMAND_TIMEOUT_MS): Promise<CompletedProcess> {
    return run(this.#request(command, []), {
      timeoutMs,
      maxOutputBytes: MAX_OUTPUT_BYTES,
    });
  }

  #request(command: string[], more: string[]) {
    const argv = [...globalFlags(this.#rootDir), ...more, ...command];
    requireAllowed(argv);
    return { file: this.#path, argv, environment: ENVIRONMENT };
  }
}

async function readVersion(path: string): Promise<Outcome<RunscVersion>> {
  const completed = await run(
    { file: path, argv: ['--version'], environment: ENVIRONMENT },
    { timeoutMs: COMMAND_TIMEOUT_MS, maxOutputBytes: MAX_OUTPUT_BYTES },
  );
  if (!succeeded(completed)) return commandFailure('--version', completed);
  const version = parseVersion(completed.stdout);
  if (version === undefined)
    return failure('sandbox_failed', 'the program is not runsc: it names no version');
  if (!KNOWN_RELEASES.includes(version.release)) {
    return failure(
      'sandbox_failed',
      `runsc ${KNOWN_RELEASES.join(' or ')} was expected, not ${version.printed}`,
    );
  }
  return success(version);
}

function requireId(id: string): string {
  if (!ContainerId.test(id)) throw new TypeError('a container id of letters, digits, _ and - was expected');
  return id;
}

function succeeded(completed: CompletedProcess): boolean {
  return completed.exitCode === 0 && completed.stopped === null;
}

function commandFailure(command: string, completed: CompletedProcess): Failure {
  const how = completed.startFailure ?? completed.stopped ?? `exit ${completed.exitCode ?? completed.signal}`;
  const lastLine = completed.stderr.trim().split('\n').at(-1) ?? '';
  return failure('sandbox_failed', `runsc ${command}: ${how}${lastLine === '' ? '' : `: ${lastLine}`}`);
}
