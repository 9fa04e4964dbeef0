/** A session that stands still, is suspended and goes on, against gVisor's own commands on a sandbox with the same in it. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { startPythonKernel } from '../host-agent/guest-link/python-kernel.ts';
import { openImageStore } from '../host-agent/images/store.ts';
import { SILENT_LOG } from '../host-agent/logging/log.ts';
import type { Sandbox } from '../host-agent/sandbox/port.ts';
import { RunscSandboxes } from '../host-agent/sandbox/runsc-sandboxes.ts';
import { BASE_ENVIRONMENT, WORKSPACE } from '../host-agent/sandbox/spec.ts';
import { FileTool } from '../host-agent/sandbox/tools/file.ts';
import { ShellTool } from '../host-agent/sandbox/tools/shell.ts';
import type { Installation } from '../host-agent/setup/setup.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../shared/limits.ts';
import type { ResourceLimits } from '../shared/session.ts';
import { SnapshotSchema } from '../shared/snapshot-resource.ts';
import { cgroupsOf, processesOfSandbox } from '../test/e2e/leftovers.ts';
import { type RawSandbox, startRawSandbox } from '../test/fixtures/raw-sandbox.ts';
import type { Api } from './api.ts';
import { compare } from './calls.ts';
import { timeInRounds } from './rounds.ts';
import type { Line } from './table.ts';

const ROUNDS = 5;
const LARGE_ROUNDS = 2;
const READY_TIMEOUT_MS = 60_000;
const MIB = 1024 ** 2;
const LARGE_BYTES = 500 * MIB;
const LARGE_LIMITS = { memory_bytes: 1_536 * MIB };
const environment = Object.entries(BASE_ENVIRONMENT).map(([name, value]) => `${name}=${value}`);

/** What a session holds when it is suspended. */
interface Case {
  what: string;
  code: string;
  rounds: number;
  warmUpRounds: number;
  limits: Partial<ResourceLimits>;
  image: Installation['image'];
}

export interface Measured {
  lines: Line[];
  notes: string[];
}

export async function measureSuspension(
  api: Api,
  installation: Installation,
  stateDir: string,
): Promise<Measured> {
  const { image } = installation;
  const plain = { rounds: ROUNDS, warmUpRounds: 1, limits: {}, image };
  const cases: Case[] = [
    { ...plain, what: 'an idle session', code: fill(0) },
    {
      ...plain,
      what: `${LARGE_BYTES / MIB} MiB of random bytes`,
      code: fill(LARGE_BYTES),
      rounds: LARGE_ROUNDS,
      warmUpRounds: 0,
      limits: LARGE_LIMITS,
    },
  ];
  const notes: string[] = [];
  const data = await openImageStore(installation.imagesDir).findByName('data');
  if (data.ok) cases.push({ ...plain, what: 'numpy and pandas', code: IMPORTING, image: data.value });
  else notes.push('a suspended session with numpy and pandas was not measured: the image data is not built');
  const lines = [...(await measurePause(api, installation)), await measureHeld(api, stateDir)];
  for (const one of cases) {
    const measured = await measure(api, installation, one);
    lines.push(...measured.lines);
    notes.push(...measured.notes);
  }
  return { lines, notes };
}

const IMPORTING = 'import numpy, pandas; numpy.ones(3).sum()';

async function measurePause(api: Api, installation: Installation): Promise<Line[]> {
  const { session_id: id } = await api.createSession();
  await api.execute(id, 'python', { code: '1' });
  const raw = await startRaw(installation, { code: fill(0), limits: {} });
  const [pause, barePause, resume, bareResume] = await timeInRounds(
    [
      { name: 'pause', run: () => api.act(id, 'pause') },
      { name: 'runsc pause', run: () => raw.command(['pause']) },
      { name: 'resume', run: () => api.act(id, 'resume') },
      { name: 'runsc resume', run: () => raw.command(['resume']) },
    ],
    { rounds: 2 * ROUNDS, warmUpRounds: 1 },
  );
  await raw.stop();
  await api.deleteSession(id);
  return [compare(pause, barePause, { atMost: 0.5 }), compare(resume, bareResume, { atMost: 0.5 })];
}

/** Everything on this machine that names the sandbox: its control groups, and its processes outside of them. */
async function measureHeld(api: Api, stateDir: string): Promise<Line> {
  const { session_id: id, sandbox_id: sandboxId } = await api.createSession();
  await api.execute(id, 'python', { code: '1' });
  const before = await heldBytes(stateDir, sandboxId ?? '');
  await api.act(id, 'suspend');
  // A control group that is being removed is still charged for what of the checkpoint's file the kernel has in its cache.
  await untilGone(
    async () =>
      (await processesOfSandbox(stateDir, sandboxId ?? '')).length === 0 &&
      !(await cgroupsOf(stateDir)).some((path) => path.includes(sandboxId ?? '')),
  );
  const after = await heldBytes(stateDir, sandboxId ?? '');
  await api.deleteSession(id);
  return {
    what: 'memory of a suspended session on its host : running',
    ours: `${(after / MIB).toFixed(1)} MiB`,
    against: `${(before / MIB).toFixed(1)} MiB`,
    ratio: after / before,
    goal: { atMost: 0 },
  };
}

async function heldBytes(stateDir: string, sandboxId: string): Promise<number> {
  const groups = (await cgroupsOf(stateDir)).filter((path) => path.includes(sandboxId));
  const charged = await Promise.all(
    groups.flatMap((path) =>
      ['memory.usage_in_bytes', 'memory.current'].map((file) =>
        readFile(join(path, file), 'utf8').then(Number, () => 0),
      ),
    ),
  );
  return charged.reduce((sum, bytes) => sum + bytes, 0);
}

async function untilGone(isGone: () => Promise<boolean>): Promise<void> {
  const untilMs = performance.now() + READY_TIMEOUT_MS;
  while (!(await isGone())) {
    if (performance.now() > untilMs) throw new Error('the sandbox of a suspended session is still there');
    await wait(50);
  }
}

async function measure(
  api: Api,
  installation: Installation,
  { what, code, rounds, warmUpRounds, limits, image }: Case,
): Promise<Measured> {
  const on = { ...installation, image };
  const { session_id: id } = await api.createSession({ image: image.name, limits });
  await api.execute(id, 'python', { code });
  const directory = await mkdtemp(join(tmpdir(), 'sandgate-bench-suspension-'));
  let raw: RawSandbox | undefined;
  let images = 0;
  await using host = await openHost(on, { code, limits });
  const [suspend, ofHost, bare] = await timeInRounds(
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
          raw = await startRaw(on, { code, limits });
          await raw.prepareCopy();
        },
        run: async () => {
          images += 1;
          await raw?.checkpointAndRestore(join(directory, String(images)));
        },
      },
    ],
    { rounds, warmUpRounds },
  );
  await raw?.stop();
  await rm(directory, { recursive: true, force: true });
  const kept = SnapshotSchema.parse(await api.post(`/v1/sessions/${id}/snapshots`, { name: 'measured' }));
  await api.delete(`/v1/snapshots/${kept.snapshot_id}`);
  await api.deleteSession(id);
  const [bytes, stored] = [kept.bytes, kept.stored_bytes].map((count) => (count / MIB).toFixed(1));
  return {
    lines: [compare(suspend, bare, { atMost: 1.3 }), compare(ofHost, bare, { atMost: 1.3 })],
    notes: [`stored of ${what}: ${stored} MiB of ${bytes} MiB`],
  };
}

async function startRaw(
  installation: Installation,
  { code, limits }: Pick<Case, 'code' | 'limits'>,
): Promise<RawSandbox> {
  const raw = await startRawSandbox(installation, { limits });
  const place = { cwd: WORKSPACE, environment };
  const kernel = await startPythonKernel(raw.link, { ...place, readyTimeoutMs: READY_TIMEOUT_MS });
  if (!kernel.ok) throw new Error(kernel.failure.message);
  const filled = await kernel.value.execute({ code, onOutput: () => undefined });
  if (!filled.ok || filled.value.status !== 'succeeded') throw new Error('the raw cell failed');
  // The other programs of a session: what gVisor writes and brings back is to be the same.
  await Promise.all([new ShellTool(raw.link, place).warm(), new FileTool(raw.link, place).warm()]);
  return raw;
}

interface BenchHost extends AsyncDisposable {
  checkpointAndRestore(): Promise<void>;
  /** What moved away is gone. */
  settled(): Promise<void>;
}

/** A host without an edge, with one sandbox in which the code was run. */
async function openHost(
  installation: Installation,
  { code, limits: wished }: Pick<Case, 'code' | 'limits'>,
): Promise<BenchHost> {
  const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-bench-checkpoint-'));
  const { runscPath, imagesDir, guestDir, image } = installation;
  const cgroupParent = `/sandgate-bench-checkpoint-${process.pid}`;
  const limits = { ...DEFAULT_RESOURCE_LIMITS, ...wished };
  const options = { runscPath, imagesDir, guestDir, stateDir, cgroupParent, capacity: 3, caps: limits };
  const opened = await RunscSandboxes.open({ ...options, log: SILENT_LOG });
  if (!opened.ok) throw new Error(opened.detail);
  const sandboxes = opened.value;
  let ids = 0;
  const config = () => {
    ids += 1;
    return {
      sandboxId: `sbx-bench-${ids}`,
      imageDigest: image.digest,
      limits: { ...limits },
      environment: {},
    };
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
