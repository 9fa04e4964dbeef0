/** What a session waits for, what one costs that nobody uses, and what many of those cost one that works. */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { openCgroups } from '../host-agent/cgroup/open.ts';
import { openImageStore } from '../host-agent/images/store.ts';
import { SILENT_LOG } from '../host-agent/logging/log.ts';
import type { PoolSettings } from '../host-agent/pool/settings.ts';
import type { Sandbox } from '../host-agent/sandbox/port.ts';
import { RunscSandboxes } from '../host-agent/sandbox/runsc-sandboxes.ts';
import type { Installation } from '../host-agent/setup/setup.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../shared/limits.ts';
import { compare } from './calls.ts';
import { startDocker } from './docker.ts';
import { type Row, timeInRounds } from './rounds.ts';
import type { Line, Measurement } from './table.ts';

const MIB = 1024 * 1024;
const ROUNDS = 7;
const IMPORT_ROUNDS = 3;
const AT_ONCE = 10;
const IDLE_SESSIONS = 50;
const IDLE_WATCH_MS = 5_000;
const BUSY_CALLS = 300;
const IMPORTS = ['numpy', 'pandas'];
const IMPORTING = 'import numpy, pandas; numpy.ones(3).sum()';
const BOUND_MS = 120_000;

/** Rows on images that this machine does not have are left out, and a note says so. */
export async function measurePool(installation: Installation): Promise<Measurement> {
  const python = installation.image.digest;
  const ready = await measureReady(installation, python);
  const lines = [...ready.lines, ...(await measureIdle(installation, python))];
  const data = await openImageStore(installation.imagesDir).findByName('data');
  if (data.ok) lines.push(...(await measureImports(installation, data.value.digest)));
  const notes = data.ok ? [] : ['numpy and pandas were not measured: the image data is not built'];
  return { lines, notes: [...ready.notes, ...notes] };
}

async function measureReady(installation: Installation, image: string): Promise<Measurement> {
  const notes: string[] = [];
  const docker = await startDocker(installation).catch((error: unknown) => {
    notes.push(`docker run was not measured: ${error instanceof Error ? error.message : 'unknown'}`);
    return undefined;
  });
  try {
    await using host = await openHost(installation, { image: 'python', ready: 3 });
    await using poolless = await openHost(installation, { image: 'python', ready: 0 });
    const rows: Row[] = [
      { name: 'session from the pool, ready for python', run: () => host.useOnce(image, '1') },
      { name: 'cold runsc run, ready for python', run: () => poolless.useOnce(image, '1') },
    ];
    if (docker !== undefined) rows.push({ name: 'docker run, hardened', run: () => docker.python('1') });
    const [ours, cold, by] = await timeInRounds(withFullPool(rows, host), {
      rounds: ROUNDS,
      warmUpRounds: 1,
    });
    const lines = [compare(ours, cold, { atMost: 1 / 10 })];
    if (by !== undefined) lines.push(compare(ours, by, { atMost: 1 / 30 }));
    return { lines, notes };
  } finally {
    await docker?.stop();
  }
}

async function measureImports(installation: Installation, image: string): Promise<Line[]> {
  await using host = await openHost(installation, { image: 'data', ready: AT_ONCE });
  await using poolless = await openHost(installation, { image: 'data', ready: 0 });
  const many = async (from: BenchHost): Promise<void> => {
    await Promise.all(Array.from({ length: AT_ONCE }, () => from.useOnce(image, IMPORTING)));
  };
  const rows: Row[] = [
    { name: 'numpy and pandas from the pool', run: () => host.useOnce(image, IMPORTING) },
    { name: 'cold boot and import', run: () => poolless.useOnce(image, IMPORTING) },
    { name: `${AT_ONCE} at once from the pool`, run: () => many(host) },
    { name: `${AT_ONCE} cold boots and imports at once`, run: () => many(poolless) },
  ];
  const timings = await timeInRounds(withFullPool(rows, host), { rounds: IMPORT_ROUNDS, warmUpRounds: 0 });
  return [
    compare(timings[0], timings[1], { atMost: 1 / 4 }),
    compare(timings[2], timings[3], { atMost: 1 / 9 }),
  ];
}

/** The pool is full again before each row, so that its refill is not in the row. */
function withFullPool(rows: readonly Row[], host: BenchHost): Row[] {
  return rows.map(({ name, run }) => ({ name, prepare: () => host.untilFull(), run }));
}

async function measureIdle(installation: Installation, image: string): Promise<Line[]> {
  await using host = await openHost(installation, { image: 'python', ready: 0 });
  const busy = await host.start(image);
  const before = await callTimes(host, busy);
  const idle: Sandbox[] = [];
  for (let count = 0; count < IDLE_SESSIONS; count += 1) idle.push(await host.start(image));
  await Promise.all(idle.map((sandbox) => host.run(sandbox, 'kept = 1')));
  await host.untilFrozen(idle);
  const bytes = host.memoryBytes(idle[IDLE_SESSIONS / 2] ?? busy);
  const cpuBefore = host.cpuMs(idle);
  await wait(IDLE_WATCH_MS);
  const cpuMs = (host.cpuMs(idle) - cpuBefore) / IDLE_SESSIONS / (IDLE_WATCH_MS / 1000);
  const beside = await callTimes(host, busy);
  await Promise.all(idle.map((sandbox) => sandbox.destroy()));
  // Before and after, for the machine may have become slower meanwhile for reasons of its own.
  const alone = (before + (await callTimes(host, busy))) / 2;
  return [
    {
      what: 'memory of an idle session',
      ours: `${(bytes / MIB).toFixed(1)} MiB`,
      against: '20 MiB',
      ratio: bytes / (20 * MIB),
      goal: { atMost: 1 },
    },
    {
      what: 'CPU of an idle session : of a second',
      ours: `${cpuMs.toFixed(3)} ms/s`,
      against: '1000 ms/s',
      ratio: cpuMs / 1000,
      goal: { atMost: 0 },
    },
    {
      what: `python cell beside ${IDLE_SESSIONS} idle sessions : alone`,
      ours: `${beside.toFixed(2)} ms`,
      against: `${alone.toFixed(2)} ms`,
      ratio: beside / alone,
      goal: { atMost: 1.2 },
    },
  ];
}

/** Median of a call at the sandbox's own door. */
async function callTimes(host: BenchHost, sandbox: Sandbox): Promise<number> {
  const samples: number[] = [];
  for (let count = -BUSY_CALLS / 3; count < BUSY_CALLS; count += 1) {
    const startedAt = performance.now();
    await host.run(sandbox, '123456 * 654321');
    if (count >= 0) samples.push(performance.now() - startedAt);
  }
  return samples.toSorted((left, right) => left - right)[BUSY_CALLS / 2] ?? Number.NaN;
}

/** What is charged to the sandbox's control group: everything that runs of it is in there. */
function memoryOf(cgroupPath: string): number {
  const charged = MEMORY_FILES.map((file) => readIfThere(file(cgroupPath))).find((text) => text !== '');
  return Number(charged ?? Number.NaN);
}

const MEMORY_FILES = [
  (path: string) => `/sys/fs/cgroup/memory${path}/memory.usage_in_bytes`,
  (path: string) => `/sys/fs/cgroup${path}/memory.current`,
];

function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}

interface BenchHost extends AsyncDisposable {
  start(image: string): Promise<Sandbox>;
  run(sandbox: Sandbox, code: string): Promise<void>;
  /** Starts, runs one cell and destroys; the end is not waited for within the time that is measured. */
  useOnce(image: string, code: string): Promise<void>;
  untilFull(): Promise<void>;
  untilFrozen(sandboxes: readonly Sandbox[]): Promise<void>;
  cpuMs(sandboxes: readonly Sandbox[]): number;
  memoryBytes(sandbox: Sandbox): number;
}

let hosts = 0;

async function openHost(
  installation: Installation,
  { image, ready }: { image: string; ready: number },
): Promise<BenchHost> {
  hosts += 1;
  const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-bench-pool-'));
  const cgroupParent = `/sandgate-bench-${process.pid}-${hosts}`;
  const { runscPath, imagesDir, guestDir } = installation;
  const pool: PoolSettings = { floor: ready, ceiling: ready, parallel: 2, image, imports: IMPORTS };
  const opened = await RunscSandboxes.open({
    runscPath,
    imagesDir,
    guestDir,
    stateDir,
    cgroupParent,
    capacity: IDLE_SESSIONS + 2 * AT_ONCE + 4,
    caps: DEFAULT_RESOURCE_LIMITS,
    pool,
    log: SILENT_LOG,
  });
  if (!opened.ok) throw new Error(opened.detail);
  const sandboxes = opened.value;
  await sandboxes.reconcile();
  const cgroups = await openCgroups(cgroupParent);
  const ending = new Set<Promise<void>>();
  let ids = 0;
  const startOne = async (imageDigest: string): Promise<{ sandbox: Sandbox; wasReady: boolean }> => {
    ids += 1;
    const sandboxId = `sbx-bench-${hosts}-${ids}`;
    const limits = { ...DEFAULT_RESOURCE_LIMITS };
    const started = await sandboxes.start({ sandboxId, imageDigest, limits, environment: {} });
    if (!started.ok) throw new Error(started.detail);
    return { sandbox: started.value, wasReady: started.value.id !== sandboxId };
  };
  const until = async (what: string, holds: () => boolean): Promise<void> => {
    const startedAt = performance.now();
    while (!holds()) {
      if (performance.now() - startedAt > BOUND_MS) throw new Error(`not in time: ${what}`);
      await wait(20);
    }
  };
  const host: BenchHost = {
    start: async (digest) => (await startOne(digest)).sandbox,
    async run(sandbox, code) {
      const call = {
        executionId: 'exe_bench',
        tool: 'python',
        arguments: { code },
        timeoutMs: 60_000,
      } as const;
      const { status } = await sandbox.execute(call, async () => undefined).finished;
      if (status !== 'succeeded') throw new Error(`the cell ended as ${status}`);
    },
    async useOnce(digest, code) {
      const { sandbox, wasReady } = await startOne(digest);
      if (wasReady !== ready > 0) throw new Error(`the sandbox was ${wasReady ? '' : 'not '}ready`);
      await host.run(sandbox, code);
      const end = sandbox.destroy().finally(() => ending.delete(end));
      ending.add(end);
    },
    async untilFull() {
      await Promise.all(ending);
      await until(
        'the pool is full',
        () => sandboxes.pooled.ready >= ready && sandboxes.pooled.starting === 0,
      );
      const names = await cgroups.list();
      await until('the pool stands still', () => names.every((name) => cgroups.isFrozen(name)));
    },
    untilFrozen: (given) =>
      until('the sessions stand still', () => given.every(({ id }) => cgroups.isFrozen(id))),
    cpuMs: (given) => given.reduce((sum, { id }) => sum + (cgroups.usage(id)?.cpuMs ?? 0), 0),
    memoryBytes: ({ id }) => memoryOf(cgroups.pathOf(id)),
    async [Symbol.asyncDispose]() {
      await Promise.all(ending);
      await sandboxes.stop();
      await rm(stateDir, { recursive: true, force: true });
    },
  };
  return host;
}
