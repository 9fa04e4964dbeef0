/** gVisor as it is otherwise had on a machine of one's own: `docker run --runtime=runsc`, by a daemon of this run alone. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { setTimeout as wait } from 'node:timers/promises';
import { promisify } from 'node:util';
import { openImageStore } from '../host-agent/images/store.ts';
import type { Installation } from '../host-agent/setup/setup.ts';

const START_TIMEOUT_MS = 60_000;
const LOOK_MS = 200;
const IMAGE = 'sandgate-bench:python';
/** A whole machine less what model-written code has no use for: what who runs such code by docker is told to give. */
const HARDENED = [
  '--runtime=runsc',
  '--network=none',
  '--memory=256m',
  '--cpus=1',
  '--pids-limit=32',
  '--read-only',
  '--tmpfs=/tmp:rw,noexec,nosuid,size=32m',
  '--user=1000:1000',
  '--cap-drop=ALL',
  '--security-opt=no-new-privileges:true',
];
const execute = promisify(execFile);

export interface Docker {
  /** A container of the image `python` that runs this and is removed. */
  python(code: string): Promise<void>;
  stop(): Promise<void>;
}

/** Throws, with the reason, where there is no dockerd that can be started. */
export async function startDocker(installation: Installation): Promise<Docker> {
  const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-bench-docker-'));
  const socket = `unix://${stateDir}/docker.sock`;
  const daemon = await startDaemon(stateDir, { socket, runscPath: installation.runscPath });
  const docker = (argv: readonly string[]) => execute('docker', [`--host=${socket}`, ...argv]);
  const stop = async (): Promise<void> => {
    daemon.kill('SIGTERM');
    if (daemon.exitCode === null) await once(daemon, 'exit');
    await rm(stateDir, { recursive: true, force: true });
  };
  try {
    await untilItAnswers(daemon, docker);
    await importImage(installation, socket);
  } catch (error: unknown) {
    const log = await readFile(join(stateDir, 'log'), 'utf8').catch(() => '');
    await stop();
    throw new Error(log.trim().split('\n').at(-1) ?? 'no dockerd', { cause: error });
  }
  return {
    python: async (code) => {
      await docker(['run', '--rm', ...HARDENED, IMAGE, 'python3', '-c', code]);
    },
    stop,
  };
}

async function startDaemon(stateDir: string, { socket, runscPath }: { socket: string; runscPath: string }) {
  const configuration = {
    hosts: [socket],
    'data-root': join(stateDir, 'data'),
    'exec-root': join(stateDir, 'exec'),
    pidfile: join(stateDir, 'pid'),
    bridge: 'none',
    iptables: false,
    // Without it gVisor refuses to start in the namespace that `--network=none` leaves.
    runtimes: { runsc: { path: runscPath, runtimeArgs: ['--network=none'] } },
  };
  const path = join(stateDir, 'daemon.json');
  await writeFile(path, JSON.stringify(configuration));
  const log = await open(join(stateDir, 'log'), 'w');
  const daemon = spawn('dockerd', [`--config-file=${path}`], { stdio: ['ignore', log.fd, log.fd] });
  try {
    await once(daemon, 'spawn');
  } catch (error: unknown) {
    await rm(stateDir, { recursive: true, force: true });
    throw new Error('there is no dockerd (Debian has it in docker.io)', { cause: error });
  } finally {
    await log.close();
  }
  return daemon;
}

async function untilItAnswers(
  daemon: Awaited<ReturnType<typeof startDaemon>>,
  docker: (argv: readonly string[]) => Promise<unknown>,
): Promise<void> {
  const untilMs = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    if (
      await docker(['version']).then(
        () => true,
        () => false,
      )
    )
      return;
    if (daemon.exitCode !== null || performance.now() > untilMs) throw new Error('dockerd did not start');
    await wait(LOOK_MS);
  }
}

async function importImage({ imagesDir, image }: Installation, socket: string): Promise<void> {
  const found = await openImageStore(imagesDir).findByDigest(image.digest);
  if (!found.ok) throw new Error(found.detail);
  const tar = spawn('tar', ['-C', found.value.rootfsPath, '-c', '.'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const imported = spawn('docker', [`--host=${socket}`, 'import', '-', IMAGE], {
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  const ended = once(imported, 'exit');
  await pipeline(tar.stdout, imported.stdin);
  const [code] = await ended;
  if (code !== 0) throw new Error('docker did not take the image');
}
