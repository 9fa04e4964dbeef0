/** Sandboxes made ahead, on real gVisor: handed over once, and like any other from then on. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openCgroups } from '../../host-agent/cgroup/open.ts';
import { SILENT_LOG } from '../../host-agent/logging/log.ts';
import type { PoolSettings } from '../../host-agent/pool/settings.ts';
import { killProcess, listProcesses } from '../../host-agent/process/process-table.ts';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { RunscSandboxes } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { type Installation, setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import { DEFAULT_RESOURCE_LIMITS, RESOURCE_CLASSES } from '../../shared/limits.ts';
import type { ResourceLimits } from '../../shared/session.ts';
import { until } from '../e2e/until.ts';
import { newSandboxId, python, shell } from './subject.ts';

const GIB = 1024 ** 3;
const READY_BOUND_MS = 60_000;
const POOL: PoolSettings = { floor: 2, ceiling: 2, parallel: 2, image: 'python', imports: ['decimal'] };

let installation: Installation;
let stateDir: string;
let cgroupParent: string;
let sandboxes: RunscSandboxes;
let count = 0;

beforeAll(async () => {
  installation = await setUp(locations(process.env), process.env, silentProgress);
}, 600_000);

afterEach(async () => {
  await sandboxes.stop();
  expect(await readdir(join(stateDir, 'bundles'))).toEqual([]);
  expect(await (await openCgroups(cgroupParent)).list()).toEqual([]);
  await rm(stateDir, { recursive: true, force: true });
});

async function open({ pool = POOL, capacity = 6 } = {}): Promise<void> {
  count += 1;
  stateDir = await mkdtemp(join(tmpdir(), 'sandgate-pool-'));
  cgroupParent = `/sandgate-pool-${process.pid}-${count}`;
  const { runscPath, imagesDir, guestDir } = installation;
  const caps = { cpus: 2, memory_bytes: GIB, processes: 512, workspace_bytes: 2 * GIB, tmp_bytes: GIB };
  const options = {
    runscPath,
    imagesDir,
    guestDir,
    stateDir,
    cgroupParent,
    capacity,
    caps,
    pool,
    log: SILENT_LOG,
  };
  const opened = await RunscSandboxes.open(options);
  if (!opened.ok) throw new Error(opened.detail);
  sandboxes = opened.value;
  await sandboxes.reconcile();
}

const ready = (number: number): Promise<true> =>
  until(`${number} sandboxes are ready`, READY_BOUND_MS, async () =>
    sandboxes.pooled.ready === number ? true : undefined,
  );

async function start(
  environment: Record<string, string> = {},
  limits: ResourceLimits = DEFAULT_RESOURCE_LIMITS,
): Promise<{ sandbox: Sandbox; wasReady: boolean }> {
  const sandboxId = newSandboxId();
  const imageDigest = installation.image.digest;
  const started = await sandboxes.start({ sandboxId, imageDigest, limits, environment });
  if (!started.ok) throw new Error(`${started.code}: ${started.detail}`);
  return { sandbox: started.value, wasReady: started.value.id !== sandboxId };
}

describe('the pool', () => {
  it('gives each session a sandbox that nobody had, with an identity of its own', async () => {
    await open();
    await ready(2);
    const given = [await start(), await start()];
    expect(given.map(({ wasReady }) => wasReady)).toEqual([true, true]);
    await ready(2);
    given.push(await start());
    expect(new Set(given.map(({ sandbox }) => sandbox.id)).size).toBe(3);
    const identity = [
      'import random, os, uuid, socket, tempfile, secrets',
      '[random.random(), hash("x"), os.urandom(8).hex(), str(uuid.uuid4()), str(uuid.uuid1()), socket.gethostname(), secrets.token_hex(8), os.getuid(), open("/etc/machine-id").read()]',
    ].join('\n');
    const values: string[][] = [];
    for (const { sandbox } of given) {
      const { value } = await python(sandbox, identity);
      values.push((value ?? '').slice(1, -1).split(', '));
    }
    const [first = [], second = []] = values;
    expect(first.length).toBe(9);
    for (const at of first.keys()) expect(new Set(values.map((row) => row[at])).size, `part ${at}`).toBe(3);
    expect(second[8]).toMatch(/^'[0-9a-f]{32}\\n'$/);
    expect(second[5]).toBe(`'${given[1]?.sandbox.id}'`);
    const clock = Number((await shell(given[0]?.sandbox ?? (await start()).sandbox, 'date +%s')).stdout);
    expect(Math.abs(Date.now() / 1000 - clock)).toBeLessThan(2);
  });

  it('has python ready with its modules, and none of their names', async () => {
    await open();
    await ready(2);
    const { sandbox } = await start();
    const code = 'import sys\n("decimal" in sys.modules, "decimal" in globals(), sys.argv)';
    expect((await python(sandbox, code)).value).toBe("(True, False, [''])");
  });

  it('gives sandboxes that go on from a checkpoint like any other, also from one taken at once', async () => {
    await open();
    await ready(2);
    const { sandbox, wasReady } = await start({ GREETING: 'hello there' });
    expect(wasReady).toBe(true);
    let living = sandbox;
    for (const generation of [1, 2]) {
      const imageDir = await mkdtemp(join(stateDir, 'image-'));
      const taken = await living.checkpoint?.(imageDir);
      if (taken?.ok !== true) throw new Error(taken?.detail ?? 'there are no checkpoints');
      await taken.value.end();
      const config = {
        sandboxId: newSandboxId(),
        imageDigest: installation.image.digest,
        limits: { ...DEFAULT_RESOURCE_LIMITS },
        environment: {},
      };
      const { state } = taken.value;
      const from = { imageDir, state, generation, isCopy: true, sinkOf: () => async () => undefined };
      const restored = await sandboxes.restore(config, from);
      if (!restored.ok) throw new Error(`${restored.code}: ${restored.detail}`);
      restored.value.goOn();
      living = restored.value.sandbox;
      expect((await shell(living, 'echo $GREETING; cat /run/sandgate/generation')).stdout).toBe(
        `hello there\n${generation}\n`,
      );
      expect((await python(living, `import os; kept = ${generation}; os.environ['GREETING']`)).value).toBe(
        "'hello there'",
      );
    }
  }, 120_000);

  it('gives the session its environment', async () => {
    await open();
    await ready(2);
    const { sandbox, wasReady } = await start({ GREETING: 'hello there', PYTHONHASHSEED: '0' });
    expect(wasReady).toBe(true);
    expect((await shell(sandbox, 'echo $GREETING')).stdout).toBe('hello there\n');
    const { value } = await python(
      sandbox,
      'import os, sys; (os.environ["GREETING"], sys.flags.hash_randomization)',
    );
    expect(value).toBe("('hello there', 0)");
  });

  it('is no way to other sizes, and those have theirs', async () => {
    await open();
    await ready(2);
    const { sandbox, wasReady } = await start({}, RESOURCE_CLASSES.small);
    expect(wasReady).toBe(false);
    expect((await shell(sandbox, 'df -B1 --output=size /workspace | tail -1')).stdout.trim()).toBe(
      String(RESOURCE_CLASSES.small.workspace_bytes),
    );
  });

  it('gives a sandbox its whole weight with its session', async () => {
    await open();
    await ready(2);
    const { sandbox } = await start();
    const files = [
      `/sys/fs/cgroup/cpu${cgroupParent}/${sandbox.id}/cpu.shares`,
      `/sys/fs/cgroup${cgroupParent}/${sandbox.id}/cpu.weight`,
    ];
    const [weight] = (await Promise.all(files.map((path) => readFile(path, 'utf8').catch(() => '')))).filter(
      Boolean,
    );
    expect(['1024', '40']).toContain(weight?.trim());
  });

  it('stands still while nobody comes', async () => {
    await open();
    await ready(2);
    const cgroups = await openCgroups(cgroupParent);
    await until('all of it is frozen', READY_BOUND_MS, async () => {
      const names = await cgroups.list();
      return names.length === 2 && names.every((name) => cgroups.isFrozen(name)) ? true : undefined;
    });
  });

  it('gives way to sessions where the host is full', async () => {
    await open({ capacity: 2 });
    await ready(2);
    const small = [await start({}, RESOURCE_CLASSES.small), await start({}, RESOURCE_CLASSES.small)];
    expect(small.map(({ wasReady }) => wasReady)).toEqual([false, false]);
    const sandboxId = newSandboxId();
    const imageDigest = installation.image.digest;
    const limits = RESOURCE_CLASSES.small;
    const refused = await sandboxes.start({ sandboxId, imageDigest, limits, environment: {} });
    expect(refused).toMatchObject({ ok: false, code: 'host_full' });
  });

  it('hands over none that was killed while it stood still', async () => {
    await open();
    await ready(2);
    const cgroups = await openCgroups(cgroupParent);
    const names = await cgroups.list();
    await until('all of it is frozen', READY_BOUND_MS, async () =>
      names.every((name) => cgroups.isFrozen(name)) ? true : undefined,
    );
    const processes = await listProcesses();
    const [doomed = ''] = names;
    for (const { pid, argv } of processes)
      if (argv.at(-1) === doomed && argv[0] === 'runsc-sandbox') killProcess(pid);
    const given = [await start(), await start()];
    expect(given.map(({ sandbox }) => sandbox.id)).not.toContain(doomed);
    for (const { sandbox } of given) expect((await python(sandbox, '6 * 7')).value).toBe('42');
  });

  it('replaces a sandbox that died in it', async () => {
    await open({ pool: { ...POOL, floor: 1, ceiling: 1 } });
    await ready(1);
    const cgroups = await openCgroups(cgroupParent);
    const [doomed = ''] = await cgroups.list();
    cgroups.kill(doomed);
    await until('another one is there', READY_BOUND_MS, async () => {
      const names = await cgroups.list();
      return sandboxes.pooled.ready === 1 && !names.includes(doomed) ? true : undefined;
    });
    expect((await start()).wasReady).toBe(true);
  });
});
