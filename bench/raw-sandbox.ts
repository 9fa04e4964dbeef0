/** A sandbox without the product around it: what gVisor and the supervisor can do by themselves. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openCgroups } from '../host-agent/cgroup/open.ts';
import { GuestLink } from '../host-agent/guest-link/guest-link.ts';
import { PythonKernel } from '../host-agent/guest-link/python-kernel.ts';
import { Runsc } from '../host-agent/runsc/runsc.ts';
import { Bundles } from '../host-agent/sandbox/bundle.ts';
import {
  BASE_ENVIRONMENT,
  buildResources,
  buildSpec,
  FIRST_SANDBOX_USER,
  WORKSPACE,
} from '../host-agent/sandbox/spec.ts';
import type { Installation } from '../scripts/setup/setup.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../shared/limits.ts';

const SANDBOX_ID = 'bench-raw';
const READY_TIMEOUT_MS = 20_000;
const environment = Object.entries(BASE_ENVIRONMENT).map(([name, value]) => `${name}=${value}`);

export interface RawSandbox {
  /** One cell as frames to the kernel and back. */
  cell: (code: string) => Promise<void>;
  /** Runs a program and counts the bytes of its stdout, as fast as they come. */
  count: (argv: string[]) => Promise<number>;
  stop: () => Promise<void>;
}

export async function startRawSandbox(installation: Installation): Promise<RawSandbox> {
  const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-bench-raw-'));
  const runsc = await Runsc.open(installation.runscPath, join(stateDir, 'runsc-root'));
  if (!runsc.ok) throw new Error(runsc.detail);
  const cgroups = await openCgroups(`/sandgate-bench-${process.pid}`);
  const bundles = new Bundles(join(stateDir, 'bundles'));
  for (const dir of [bundles.dir, join(stateDir, 'runsc-root')]) await mkdir(dir, { mode: 0o700 });
  const limits = { ...DEFAULT_RESOURCE_LIMITS };
  const { memory, cpu, pids } = buildResources(limits);
  await bundles.write(
    SANDBOX_ID,
    buildSpec({
      limits,
      rootfsPath: installation.image.rootfsPath,
      guestDir: installation.guestDir,
      storage: bundles.storageOf(SANDBOX_ID),
      userId: FIRST_SANDBOX_USER,
      cgroupPath: cgroups.pathOf(SANDBOX_ID),
    }),
  );
  await cgroups.create(SANDBOX_ID, {
    memoryBytes: memory.limit,
    cpuQuotaUs: cpu.quota,
    cpuPeriodUs: cpu.period,
    cpuShares: cpu.shares,
    pids: pids.limit,
  });
  const sandboxProcess = runsc.value.run(SANDBOX_ID, bundles.pathOf(SANDBOX_ID));
  sandboxProcess.stderr.resume();
  const link = new GuestLink({ stdin: sandboxProcess.stdin, stdout: sandboxProcess.stdout });
  const ready = await link.ready(READY_TIMEOUT_MS);
  if (!ready.ok) throw new Error(ready.failure.message);
  const kernel = await PythonKernel.start(link, {
    cwd: WORKSPACE,
    environment,
    readyTimeoutMs: READY_TIMEOUT_MS,
  });
  if (!kernel.ok) throw new Error(kernel.failure.message);

  return {
    async cell(code) {
      const outcome = await kernel.value.execute({ code, onOutput: () => {} });
      if (!outcome.ok || outcome.value.status !== 'succeeded') throw new Error('the raw cell failed');
    },
    async count(argv) {
      let bytes = 0;
      const channel = await link.spawn({
        argv,
        cwd: WORKSPACE,
        environment,
        onOutput: (_stream, chunk) => {
          bytes += chunk.length;
        },
      });
      if (!channel.ok) throw new Error(channel.failure.message);
      await channel.value.exited;
      await channel.value.release(READY_TIMEOUT_MS);
      return bytes;
    },
    async stop() {
      link.close();
      await runsc.value.delete(SANDBOX_ID, 10_000);
      await cgroups.remove(SANDBOX_ID);
      await cgroups.removeParent();
      await rm(stateDir, { recursive: true, force: true });
    },
  };
}
