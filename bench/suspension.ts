/** A session that stands still, is suspended and goes on, against gVisor's own commands on a sandbox with the same in it. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startPythonKernel } from '../host-agent/guest-link/python-kernel.ts';
import { SILENT_LOG } from '../host-agent/logging/log.ts';
import type { Sandbox } from '../host-agent/sandbox/port.ts';
import { RunscSandboxes } from '../host-agent/sandbox/runsc-sandboxes.ts';
import { BASE_ENVIRONMENT, WORKSPACE } from '../host-agent/sandbox/spec.ts';
import type { Installation } from '../host-agent/setup/setup.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../shared/limits.ts';
import { type RawSandbox, startRawSandbox } from '../test/fixtures/raw-sandbox.ts';
import type { Api } from './api.ts';
import { compare } from './calls.ts';
import { timeInRounds } from './rounds.ts';
import type { Line } from './table.ts';

const ROUNDS = 5;
const LARGE_ROUNDS = 3;
const READY_TIMEOUT_MS = 30_000;
const LARGE_BYTES = 200 * 1024 * 1024;
const environment = Object.entries(BASE_ENVIRONMENT).map(([name, value]) => `${name}=${value}`);

export async function measureSuspension(api: Api, installation: Installation): Promise<Line[]> {
  const idle = await measure(api, installation, { what: 'an idle session', bytes: 0, rounds: ROUNDS });
  const large = await measure(api, installation, {
    what: `${LARGE_BYTES / 1024 ** 2} MiB of random bytes`,
    bytes: LARGE_BYTES,
    rounds: LARGE_ROUNDS,
  });
  return [...(await measurePause(api, installation)), ...idle, ...large];
}

async function measurePause(api: Api, installation: Installation): Promise<Line[]> {
  const { session_id: id } = await api.createSession();
  await api.execute(id, 'python', { code: '1' });
  const raw = await startRaw(installation, 0);
  const [ours, bare] = await timeInRounds(
    [
      {
        name: 'pause and resume',
        run: async () => {
          await api.act(id, 'pause');
          await api.act(id, 'resume');
        },
      },
      {
        name: 'runsc pause and resume',
        run: async () => {
          await raw.command(['pause']);
          await raw.command(['resume']);
        },
      },
    ],
    { rounds: 2 * ROUNDS, warmUpRounds: 1 },
  );
  await raw.stop();
  await api.deleteSession(id);
  return [compare(ours, bare, { atMost: 0.5 })];
}

async function measure(
  api: Api,
  installation: Installation,
  { what, bytes, rounds }: { what: string; bytes: number; rounds: number },
): Promise<Line[]> {
  const { session_id: id } = await api.createSession();
  await api.execute(id, 'python', { code: fill(bytes) });
  const directory = await mkdtemp(join(tmpdir(), 'sandgate-bench-suspension-'));
  let raw: RawSandbox | undefined;
  let images = 0;
  await using host = await openHost(installation, fill(bytes));
  const [ours, ofHost, bare] = await timeInRounds(
    [
      {
        name: `suspend and resume, stored: ${what}`,
        run: async () => {
          await api.act(id, 'suspend');
          await api.act(id, 'resume');
        },
      },
      {
        name: `checkpoint and restore by the host, not stored: ${what}`,
        prepare: () => host.settled(),
        run: () => host.checkpointAndRestore(),
      },
      {
        name: 'bare runsc checkpoint and restore',
        prepare: async () => {
          await raw?.stop();
          raw = await startRaw(installation, bytes);
          await raw.prepareCopy();
        },
        run: async () => {
          images += 1;
          await raw?.checkpointAndRestore(join(directory, String(images)));
        },
      },
    ],
    { rounds, warmUpRounds: 1 },
  );
  await raw?.stop();
  await rm(directory, { recursive: true, force: true });
  await api.deleteSession(id);
  return [compare(ours, bare, { atMost: 1.3 }), compare(ofHost, bare, { atMost: 1.3 })];
}

async function startRaw(installation: Installation, bytes: number): Promise<RawSandbox> {
  const raw = await startRawSandbox(installation);
  const place = { cwd: WORKSPACE, environment };
  const kernel = await startPythonKernel(raw.link, { ...place, readyTimeoutMs: READY_TIMEOUT_MS });
  if (!kernel.ok) throw new Error(kernel.failure.message);
  const filled = await kernel.value.execute({ code: fill(bytes), onOutput: () => undefined });
  if (!filled.ok || filled.value.status !== 'succeeded') throw new Error('the raw cell failed');
  return raw;
}

interface BenchHost extends AsyncDisposable {
  checkpointAndRestore(): Promise<void>;
  /** What moved away is gone. */
  settled(): Promise<void>;
}

/** A host without an edge, with one sandbox in which the code was run. */
async function openHost(installation: Installation, code: string): Promise<BenchHost> {
  const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-bench-checkpoint-'));
  const { runscPath, imagesDir, guestDir, image } = installation;
  const cgroupParent = `/sandgate-bench-checkpoint-${process.pid}`;
  const caps = DEFAULT_RESOURCE_LIMITS;
  const options = { runscPath, imagesDir, guestDir, stateDir, cgroupParent, capacity: 3, caps };
  const opened = await RunscSandboxes.open({ ...options, log: SILENT_LOG });
  if (!opened.ok) throw new Error(opened.detail);
  const sandboxes = opened.value;
  let ids = 0;
  const config = () => {
    ids += 1;
    const limits = { ...DEFAULT_RESOURCE_LIMITS };
    return { sandboxId: `sbx-bench-${ids}`, imageDigest: image.digest, limits, environment: {} };
  };
  const started = await sandboxes.start(config());
  if (!started.ok) throw new Error(started.detail);
  let sandbox: Sandbox = started.value;
  let ending: Promise<void> = Promise.resolve();
  const call = { executionId: 'exe_bench', tool: 'python', arguments: { code }, timeoutMs: 60_000 } as const;
  const { status } = await sandbox.execute(call, async () => undefined).finished;
  if (status !== 'succeeded') throw new Error(`the cell ended as ${status}`);
  return {
    settled: () => ending,
    async checkpointAndRestore() {
      const imageDir = await mkdtemp(join(stateDir, 'image-'));
      const taken = await sandbox.checkpoint?.(imageDir);
      if (taken?.ok !== true) throw new Error(taken?.detail ?? 'there are no checkpoints');
      ending = taken.value.end();
      const { state } = taken.value;
      const from = { imageDir, state, generation: 1, isCopy: false, sinkOf: () => async () => undefined };
      const restored = await sandboxes.restore(config(), from);
      if (!restored.ok) throw new Error(restored.detail);
      restored.value.goOn();
      sandbox = restored.value.sandbox;
      await rm(imageDir, { recursive: true });
    },
    async [Symbol.asyncDispose]() {
      await ending;
      await sandboxes.stop();
      await rm(stateDir, { recursive: true, force: true });
    },
  };
}

function fill(bytes: number): string {
  return `import os\nkept = os.urandom(${bytes})\nlen(kept)`;
}
