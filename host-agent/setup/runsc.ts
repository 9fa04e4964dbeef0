/** Puts the pinned runsc into the cache; nothing is installed into the system and no runsc on the PATH is used. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { SetupFailure } from './failure.ts';
import { fileDigest, type PinnedDigest } from './file-digest.ts';
import { debianPin, fetchDebianRunsc } from './runsc-debian.ts';
import { cachedGvisorDigest, fetchGvisorRunsc } from './runsc-gvisor.ts';
import { DEBIAN_RUNSC, GVISOR_RUNSC } from './runsc-pin.ts';
import type { Outcome } from './step.ts';

export type RunscRequest = {
  /** `debian` or `gvisor`: SANDGATE_RUNSC_SOURCE. */
  source: string;
  /** What the operator expects of gVisor's release: SANDGATE_RUNSC_SHA512. */
  expectedSha512?: string | undefined;
  cacheDir: string;
  architecture: string;
  mainUri: () => Promise<string>;
};

export async function installRunsc(
  request: RunscRequest,
  detail: (text: string) => void,
): Promise<Outcome<string>> {
  const { source, architecture } = request;
  if (source !== 'debian' && source !== 'gvisor') {
    throw new SetupFailure(`SANDGATE_RUNSC_SOURCE must be debian or gvisor, not ${source}`);
  }
  const version = source === 'debian' ? DEBIAN_RUNSC.version : GVISOR_RUNSC.release;
  const target = join(request.cacheDir, 'runsc', `${source}-${version}-${architecture}`, 'runsc');
  const pinned =
    source === 'debian' ? debianDigest(architecture) : await gvisorDigest(target, request.expectedSha512);
  if (await matches(target, pinned)) return { value: target, did: `${version}, cached` };

  const workDir = await makeWorkDir(request.cacheDir);
  try {
    const download = { architecture, workDir, target };
    if (source === 'debian') {
      await fetchDebianRunsc({ ...download, mainUri: await request.mainUri() }, detail);
    } else {
      await fetchGvisorRunsc({ ...download, expectedSha512: request.expectedSha512 }, detail);
    }
  } finally {
    await rm(workDir, { recursive: true, force: true });
  }
  return { value: target, did: `${version}, verified` };
}

/** A cached program is used only while it still has the pinned bytes. */
async function matches(path: string, pinned: PinnedDigest | undefined): Promise<boolean> {
  if (pinned === undefined) return false;
  return (await fileDigest(path, pinned.algorithm).catch(() => undefined)) === pinned.hex;
}

function debianDigest(architecture: string): PinnedDigest {
  return { algorithm: 'sha256', hex: debianPin(architecture).binarySha256 };
}

async function gvisorDigest(target: string, expected: string | undefined): Promise<PinnedDigest | undefined> {
  return expected === undefined ? cachedGvisorDigest(target) : { algorithm: 'sha512', hex: expected };
}

async function makeWorkDir(cacheDir: string): Promise<string> {
  const parent = join(cacheDir, 'work');
  await mkdir(parent, { recursive: true });
  return mkdtemp(join(parent, 'runsc-'));
}
