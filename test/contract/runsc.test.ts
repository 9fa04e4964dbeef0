/** The contract on real gVisor, and what only a real machine can show. Fails where there is no runsc. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openCgroups } from '../../host-agent/cgroup/open.ts';
import { IMAGE_FILE, ImageFileSchema, imageDir, ROOTFS_DIR } from '../../host-agent/images/image-file.ts';
import { SILENT_LOG } from '../../host-agent/logging/log.ts';
import { listProcesses } from '../../host-agent/process/process-table.ts';
import { RunscSandboxes, type RunscSandboxesOptions } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { treeManifest } from '../../host-agent/setup/tree-manifest.ts';
import { locations } from '../../scripts/locations.ts';
import { describeRun } from './run-contract.ts';
import { describeAttacks } from './runsc-attacks.ts';
import { describeFillings } from './runsc-fillings.ts';
import { describeHeld } from './runsc-held.ts';
import { describeIdle } from './runsc-idle.ts';
import { describeIsolation } from './runsc-isolation.ts';
import { describeLimits } from './runsc-limits.ts';
import { describeOrphans } from './runsc-orphans.ts';
import { describeSandboxes } from './sandboxes.ts';
import { describeRealTransfers } from './transfer-contract.ts';

const GIB = 1024 ** 3;
const CAPACITY = 3;

async function open(options: RunscSandboxesOptions): Promise<RunscSandboxes> {
  const opened = await RunscSandboxes.open(options);
  if (!opened.ok) throw new Error(`${opened.code}: ${opened.detail}`);
  return opened.value;
}

let options: RunscSandboxesOptions;

describeSandboxes(
  'the sandboxes on runsc',
  async () => {
    const installation = await setUp(locations(process.env), process.env, silentProgress);
    const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-contract-'));
    const { runscPath, imagesDir, guestDir, streamKeeperPath } = installation;
    options = {
      runscPath,
      imagesDir,
      guestDir,
      streamKeeperPath,
      stateDir,
      cgroupParent: `/sandgate-contract-${process.pid}`,
      capacity: CAPACITY,
      caps: {
        cpus: 2,
        memory_bytes: GIB,
        processes: 256,
        workspace_bytes: GIB,
        tmp_bytes: GIB,
      },
      // Far above what any test needs: that it is in force is what one of them looks at.
      io: { readBytesPerS: GIB, writeBytesPerS: GIB },
      log: SILENT_LOG,
    };
    const sandboxes = await open(options);
    return {
      sandboxes,
      imageDigest: installation.image.digest,
      restarted: () => open(options),
      tracesOf: (sandboxId) => tracesOf(sandboxId),
      [Symbol.asyncDispose]: async () => {
        await sandboxes.stop();
        await rm(stateDir, { recursive: true, force: true });
      },
    };
  },
  (subject) => {
    describeRun(subject);
    describeRealTransfers(subject);
    describeLimits(subject);
    describeIsolation(subject);
    describeAttacks(subject, () => options);
    describeFillings(subject);
    describeIdle(subject, () => options);
    describeOrphans(subject, () => options);
    describeHeld(subject, () => options);
    it('leaves the image as it was built: the next start finds it whole', async () => {
      const [name] = subject().sandboxes.facts.images.filter(
        ({ digest }) => digest === subject().imageDigest,
      );
      const dir = imageDir(options.imagesDir, name?.name ?? '', subject().imageDigest);
      const file = ImageFileSchema.parse(JSON.parse(await readFile(join(dir, IMAGE_FILE), 'utf8')));
      expect((await treeManifest(join(dir, ROOTFS_DIR))).sha256).toBe(file.manifest_sha256);
    });
  },
);

async function tracesOf(sandboxId: string): Promise<string[]> {
  const cgroups = await openCgroups(options.cgroupParent);
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n');
  return [
    ...(await listProcesses())
      .filter(({ argv }) => argv.some((argument) => argument.includes(sandboxId)))
      .map(({ pid }) => `process ${pid}`),
    ...(await cgroups.list()).filter((name) => name === sandboxId).map((name) => `cgroup ${name}`),
    ...mounts.filter((line) => line.includes(sandboxId)).map((line) => `mount ${line}`),
    // What runsc knows of a container is a file, too. It is not asked: it waits for the answers of sandboxes that are frozen.
    ...(await readdir(options.stateDir, { recursive: true }))
      .filter((path) => path.includes(sandboxId))
      .map((path) => `file ${path}`),
  ];
}
