/** What sandboxes are made with on this machine, and the check that all of it is there. */
import { mkdir, realpath, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { Sha256Schema } from '../../shared/ids.ts';
import type { ResourceLimits } from '../../shared/session.ts';
import type { Cgroups, IoLimits } from '../cgroup/cgroups.ts';
import { diskOf } from '../cgroup/disk.ts';
import { openCgroups } from '../cgroup/open.ts';
import type { EgressSettings } from '../egress/settings.ts';
import { RootFiles } from '../images/root/root-files.ts';
import { type ImageStore, openImageStore } from '../images/store.ts';
import type { Log } from '../logging/log.ts';
import type { PoolSettings } from '../pool/settings.ts';
import { Runsc } from '../runsc/runsc.ts';
import { StreamKeeper } from '../stream-keeper/stream-keeper.ts';
import { Bundles } from './bundle.ts';
import type { SandboxRuntimeFacts } from './port.ts';
import { HELD_FOR_S } from './thaw-guard.ts';

export interface RunscSandboxesOptions {
  runscPath: string;
  imagesDir: string;
  /** Holds the supervisor and the kernels, which lie in the root of every sandbox. */
  guestDir: string;
  /** Of this agent alone: bundles and runsc's own state lie in it. */
  stateDir: string;
  /** Of this agent alone: everything below it is removed by `reconcile`. */
  cgroupParent: string;
  capacity: number;
  /** The host's own upper bounds on what a sandbox may ask for. */
  caps: ResourceLimits;
  /** How fast each sandbox reads from and writes to the disk of the state folder; without it, as fast as that is. */
  io?: IoRates;
  /** What sessions may reach at most; without it, what their own rules say. */
  egress?: EgressSettings;
  /** Sandboxes made ahead of their sessions; without it, none. */
  pool?: PoolSettings;
  /** How long a program waits for its tools before its sandbox is frozen. */
  restAfterMs?: number;
  /** Keeps the streams of sandboxes while no agent is there; without it, each dies with its agent. */
  streamKeeperPath?: string;
  /** How long sandboxes at rest wait for a successor of an agent that died. */
  heldForS?: number;
  log: Log;
}

export type IoRates = Omit<IoLimits, 'disk'>;

export interface Engine {
  runsc: Runsc;
  streamKeeper: StreamKeeper;
  cgroups: Cgroups;
  io: IoLimits | undefined;
  images: ImageStore;
  roots: RootFiles;
  bundles: Bundles;
  /** Digest of what the host lays into each sandbox. */
  guest: string;
  /** Where runsc keeps its state. */
  runscRootDir: string;
  facts: SandboxRuntimeFacts;
}

/** Refuses a machine that cannot hold a sandbox: nothing of a guest ever runs outside of one. */
export async function openEngine(options: RunscSandboxesOptions): Promise<Outcome<Engine>> {
  await mkdir(options.stateDir, { recursive: true, mode: 0o700 });
  // gVisor compares mount sources with annotations as texts, so a link in the path must not come between.
  const stateDir = await realpath(options.stateDir);
  const runscRootDir = join(stateDir, 'runsc-root');
  const bundles = new Bundles(join(stateDir, 'bundles'));
  for (const dir of [runscRootDir, bundles.dir]) await mkdir(dir, { recursive: true, mode: 0o700 });

  const runsc = await Runsc.open(options.runscPath, runscRootDir);
  if (!runsc.ok) return runsc;
  const cgroups = await usableCgroups(options.cgroupParent);
  if (!cgroups.ok) return cgroups;
  const io = ioLimits(stateDir, options.io);
  if (!io.ok) return io;
  const guestDir = await realpath(options.guestDir).catch(() => options.guestDir);
  const supervisor = await stat(join(guestDir, 'supervisor')).catch(() => undefined);
  if (supervisor?.isFile() !== true) return failure('sandbox_failed', 'the guest supervisor is missing');
  const guest = basename(guestDir);
  const images = openImageStore(options.imagesDir);
  const named = await offeredImages(images);
  if (named.length === 0) return failure('sandbox_failed', 'the image store is empty');

  const facts = {
    runscVersion: runsc.value.version.printed,
    runscPlatform: runsc.value.platform,
    images: named,
    capacity: options.capacity,
    guestSha256: Sha256Schema.safeParse(guest).data,
  };
  return success({
    runsc: runsc.value,
    streamKeeper: new StreamKeeper({
      program: options.streamKeeperPath,
      directory: stateDir,
      waitS: options.heldForS ?? HELD_FOR_S,
    }),
    cgroups: cgroups.value,
    io: io.value,
    images,
    roots: new RootFiles({ guestDir, guest }),
    bundles,
    guest,
    runscRootDir,
    facts,
  });
}

/** As many as the edge takes; the newest are there in any case. */
const MAX_OFFERED_IMAGES = 256;

export async function offeredImages(images: ImageStore): Promise<SandboxRuntimeFacts['images']> {
  const all = await images.list();
  return all.slice(0, MAX_OFFERED_IMAGES).map(({ name, digest }) => ({ name, digest }));
}

function ioLimits(stateDir: string, rates: IoRates | undefined): Outcome<IoLimits | undefined> {
  if (rates?.readBytesPerS === undefined && rates?.writeBytesPerS === undefined) return success(undefined);
  const disk = diskOf(stateDir);
  return disk === undefined
    ? failure('sandbox_failed', 'the state folder is on no disk, so its speed cannot be bounded')
    : success({ disk, ...rates });
}

async function usableCgroups(parent: string): Promise<Outcome<Cgroups>> {
  try {
    return success(await openCgroups(parent));
  } catch (error: unknown) {
    return failure('sandbox_failed', error instanceof Error ? error.message : 'there are no cgroups');
  }
}
