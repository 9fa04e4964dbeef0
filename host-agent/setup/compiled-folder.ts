/** Folders that set-up makes of sources of this repository: compiled programs, and files that lie beside them as they are. */
import { createHash } from 'node:crypto';
import { chmod, copyFile, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { run } from '../process/run-command.ts';
import { SetupFailure } from './failure.ts';
import { failureReason } from './failure-reason.ts';
import { fileDigest } from './file-digest.ts';
import type { Outcome } from './step.ts';

const COMPILER = 'musl-gcc';
/** Written last, with the digest of each file: a folder without it is not whole. */
const LIST_FILE = 'artifacts.json';

export interface Artifact {
  /** Relative to the folder of the sources. */
  readonly source: string;
  /** Relative to the folder that is made. */
  readonly target: string;
  /** Arguments of musl-gcc before `-o target source`; null: copied as it is. */
  readonly compile: readonly string[] | null;
}

export type FolderRequest = {
  /** What the folder is of, as its parent in the cache is called. */
  name: 'guest' | 'digest' | 'stream-keeper';
  sourceDir: string;
  artifacts: readonly Artifact[];
  cacheDir: string;
};

/** The folder is named by the digest of what it is made from, so it never changes under a running sandbox. */
export async function installFolder(
  request: FolderRequest,
  detail: (text: string) => void,
): Promise<Outcome<string>> {
  const digest = await folderDigest(request);
  const target = join(request.cacheDir, request.name, digest);
  if (await isWhole(target)) return { value: target, did: `${digest.slice(0, 12)}, cached` };

  const workParent = join(request.cacheDir, 'work');
  await mkdir(workParent, { recursive: true });
  const workDir = await mkdtemp(join(workParent, `${request.name}-`));
  try {
    await chmod(workDir, 0o755);
    await makeArtifacts(request, workDir, detail);
    await rm(target, { recursive: true, force: true });
    await mkdir(dirname(target), { recursive: true });
    await rename(workDir, target);
  } finally {
    await rm(workDir, { recursive: true, force: true });
  }
  return { value: target, did: `${digest.slice(0, 12)}, ${request.artifacts.length} files made` };
}

async function makeArtifacts(
  { sourceDir, artifacts }: FolderRequest,
  dir: string,
  detail: (text: string) => void,
): Promise<void> {
  const digests: Record<string, string> = {};
  for (const artifact of artifacts) {
    const source = join(sourceDir, artifact.source);
    const target = join(dir, artifact.target);
    await mkdir(dirname(target), { recursive: true, mode: 0o755 });
    if (artifact.compile === null) {
      await copyFile(source, target);
      await chmod(target, 0o644);
    } else {
      detail(`compiling ${artifact.source}`);
      await compile([...artifact.compile, '-o', target, source], artifact.source);
      await chmod(target, 0o755);
    }
    digests[artifact.target] = await fileDigest(target, 'sha256');
  }
  await writeFile(join(dir, LIST_FILE), JSON.stringify(digests));
}

/** Over the list of artifacts, their sources, and every header they may include. */
export async function folderDigest({ sourceDir, artifacts }: FolderRequest): Promise<string> {
  const headers = (await readdir(sourceDir)).filter((name) => name.endsWith('.h'));
  const paths = [...new Set([...artifacts.map((artifact) => artifact.source), ...headers])].sort();
  const hash = createHash('sha256').update(JSON.stringify([COMPILER, artifacts]));
  for (const path of paths) {
    const bytes = await readFile(join(sourceDir, path)).catch(() => {
      throw new SetupFailure(`source ${path} is missing in ${sourceDir}`);
    });
    hash.update(JSON.stringify([path, bytes.length])).update(bytes);
  }
  return hash.digest('hex');
}

async function isWhole(dir: string): Promise<boolean> {
  try {
    const digests: unknown = JSON.parse(await readFile(join(dir, LIST_FILE), 'utf8'));
    if (typeof digests !== 'object' || digests === null) return false;
    for (const [target, expected] of Object.entries(digests)) {
      if ((await fileDigest(join(dir, target), 'sha256')) !== expected) return false;
    }
    return true;
  } catch {
    return false;
  }
}

async function compile(args: string[], source: string): Promise<void> {
  const result = await run(COMPILER, args);
  if (result.exitCode === 0) return;
  throw new SetupFailure(`cannot compile ${source}: ${failureReason(result.tail)}`);
}
