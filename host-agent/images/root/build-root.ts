/** Makes the root file of an image, the same one on every host that has the same tree and the same programs. */
import { createHash } from 'node:crypto';
import {
  chmod,
  copyFile,
  lstat,
  lutimes,
  mkdir,
  mkdtemp,
  open,
  readdir,
  rename,
  rm,
  utimes,
} from 'node:fs/promises';
import { join } from 'node:path';
import { run } from '../../process/run-command.ts';
import { treeManifest } from '../../setup/tree-manifest.ts';
import { type RootFile, readRootFile, rootPath, rootsDir, uuidOf } from './root-file.ts';

/** Raised when the same tree becomes another file. */
const FORMAT = 1;
const GUEST_DIR = 'sandgate';
/** A file of Debian's is older than this when an image is made of it; what its build itself wrote is not. */
const OWN_FILES_MS = 60 * 60_000;
const UNUSED_MS = 7 * 86_400_000;
const BUILD_PREFIX = 'build-';
const ABANDONED_MS = 60 * 60_000;
/** Of root's powers that to read files whose modes allow nobody to: the agent's unit has no other that does. */
const FEW_POWERS = ['--no-new-privs', '--inh-caps=-all', '--bounding-set=-all,+dac_override', '--'];

export interface RootRequest {
  rootfsPath: string;
  /** When the tree was built here; undefined for one whose times are those of an imported image. */
  builtAt: string | undefined;
  guestDir: string;
  /** Digest of the programs in the guest folder. */
  guest: string;
}

/** Takes about a second for 200 MB. Throws where it cannot be made. */
export async function buildRootFile(request: RootRequest): Promise<RootFile> {
  const { rootfsPath, guest } = request;
  const dir = rootsDir(rootfsPath);
  await mkdir(dir, { recursive: true, mode: 0o700 });
  await removeUnused(dir);
  const workDir = await mkdtemp(join(dir, BUILD_PREFIX));
  try {
    const tree = join(workDir, 'tree');
    await layOut(tree, request);
    const file = join(workDir, 'root.erofs');
    const id = await makeFile(tree, file, await newestShippedS(rootfsPath, request.builtAt));
    const made = await readRootFile(file);
    if (made?.id !== id) throw new Error('mkfs.erofs made a file that gVisor cannot read');
    const target = rootPath(rootfsPath, guest);
    await rename(file, target);
    return { path: target, id };
  } finally {
    await rm(workDir, { recursive: true, force: true });
  }
}

/** The tree's own files under further names, and the programs. Nothing of the tree is written to. */
async function layOut(tree: string, { rootfsPath, guestDir }: RootRequest): Promise<void> {
  await command('cp', ['--archive', '--link', '--no-target-directory', rootfsPath, tree]);
  const target = join(tree, GUEST_DIR);
  await rm(target, { recursive: true, force: true });
  await copyPrograms(guestDir, target);
  const { mtime } = await lstat(rootfsPath);
  await utimes(tree, mtime, mtime);
}

async function copyPrograms(from: string, to: string): Promise<void> {
  await mkdir(to);
  await chmod(to, 0o755);
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) await copyPrograms(source, target);
    else await copyFile(source, target);
    // They were compiled here, at a time that says nothing.
    await lutimes(target, 0, 0);
  }
  await lutimes(to, 0, 0);
}

/**
 * In seconds. A build leaves files and folders that are as new as itself, and so differ from host to host in nothing
 * but that: they all get the time of the newest file that was not made by it.
 */
async function newestShippedS(rootfsPath: string, builtAt: string | undefined): Promise<number> {
  const before = builtAt === undefined ? Number.POSITIVE_INFINITY : Date.parse(builtAt) - OWN_FILES_MS;
  let newestMs = 0;
  const walk = async (dir: string): Promise<void> => {
    const entries = await readdir(dir, { withFileTypes: true });
    const stats = await Promise.all(entries.map(({ name }) => lstat(join(dir, name))));
    for (const stat of stats) {
      // Links are made anew wherever an image is imported.
      const isShipped = !stat.isSymbolicLink() && stat.mtimeMs < before;
      if (isShipped && stat.mtimeMs > newestMs) newestMs = stat.mtimeMs;
    }
    for (const entry of entries) if (entry.isDirectory()) await walk(join(dir, entry.name));
  };
  await walk(rootfsPath);
  return Math.floor(newestMs / 1000);
}

/** Gives the id of what is in the file. */
async function makeFile(tree: string, file: string, latestTimeS: number): Promise<string> {
  const version = /\d+(\.\d+)+/.exec(await command('fsck.erofs', ['-V']))?.[0];
  const { sha256 } = await treeManifest(tree, { latestTimeMs: latestTimeS * 1000 });
  const described = JSON.stringify([FORMAT, version, latestTimeS, sha256]);
  const id = createHash('sha256').update(described).digest('hex').slice(0, 32);
  await command(
    'setpriv',
    [
      ...FEW_POWERS,
      'mkfs.erofs',
      '--quiet',
      // gVisor reads neither attributes nor data beside an inode.
      '-x-1',
      '-Enoinline_data',
      `-U${uuidOf(id)}`,
      file,
      tree,
    ],
    // Later times become this one, and it is the file's own.
    { SOURCE_DATE_EPOCH: String(latestTimeS) },
  );
  await using made = await open(file, 'r+');
  await made.sync();
  return id;
}

async function command(
  name: string,
  argv: readonly string[],
  variables: Record<string, string> = {},
): Promise<string> {
  const { exitCode, stdout, tail } = await run('nice', [name, ...argv], {
    environment: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C', ...variables },
  });
  if (exitCode === 0) return stdout;
  const hint = exitCode === 127 ? ' (the package erofs-utils has it)' : '';
  throw new Error(`${argv.find((argument) => argument === 'mkfs.erofs') ?? name} failed${hint}: ${tail}`);
}

/** Of versions of the programs that no agent has used for long, and of builds that were cut off. */
async function removeUnused(dir: string): Promise<void> {
  for (const name of await readdir(dir)) {
    const path = join(dir, name);
    const found = await lstat(path).catch(() => undefined);
    if (found === undefined) continue;
    const unusedMs = Date.now() - found.mtimeMs;
    if (unusedMs > (name.startsWith(BUILD_PREFIX) ? ABANDONED_MS : UNUSED_MS))
      await rm(path, { recursive: true, force: true });
  }
}
