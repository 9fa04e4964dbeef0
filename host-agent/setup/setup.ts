/** Everything a fresh machine needs, in order; each step does nothing when its result is there already. */
import { mkdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { DIGEST_ARTIFACTS, DIGEST_LIBRARY } from '../digest/artifacts.ts';
import { GUEST_ARTIFACTS } from '../guest/artifacts.ts';
import { type ImportedImage, importImage } from '../images/import/import-image.ts';
import type { ImageSource } from '../images/import/source.ts';
import { ImageRefusal } from '../images/refusal.ts';
import { waitForLock } from '../process/lock-file.ts';
import { STREAM_KEEPER_ARTIFACTS, STREAM_KEEPER_PROGRAM } from '../stream-keeper/artifacts.ts';
import { installAptPackages, updateAptLists } from './apt-packages.ts';
import { installFolder } from './compiled-folder.ts';
import { type DebianArchive, debianArchive } from './debian-archive.ts';
import { SetupFailure } from './failure.ts';
import { type BuiltImage, installImage, recipeNames } from './image.ts';
import { installImageRoot } from './image-root.ts';
import { removeLeftovers } from './leftovers.ts';
import { type Machine, requireMachine, requireRoot } from './machine.ts';
import { installRunsc } from './runsc.ts';
import type { Outcome, Progress } from './step.ts';

/** Every host has it. */
export const DEFAULT_IMAGE = 'python';
/** What fetches from registries. */
const REGISTRY_PACKAGES = ['skopeo'];

/** Where the sources are, and where what is made of them goes. */
export type SetupPlaces = { repositoryDir: string; cacheDir: string };

export type Installation = {
  runscPath: string;
  /** For `openImageStore` of the host agent. */
  imagesDir: string;
  /** Holds `supervisor`, `files` and `kernels/`. */
  guestDir: string;
  /** What the agent's own process loads to make digests. */
  digestLibrary: string;
  /** The program that keeps sandboxes over the end of their agent. */
  streamKeeperPath: string;
  image: BuiltImage;
};

export async function setUp(
  { repositoryDir, cacheDir }: SetupPlaces,
  environment: NodeJS.ProcessEnv,
  progress: Progress,
): Promise<Installation> {
  return withCache(cacheDir, progress, async ({ machine, archive }) => {
    await progress.step('packages', installAptPackages);
    const runscPath = await progress.step('runsc', (detail) => {
      const mainUri = async (): Promise<string> => (await archive(detail)).mainUri;
      const source = environment.SANDGATE_RUNSC_SOURCE || 'debian';
      const expectedSha512 = environment.SANDGATE_RUNSC_SHA512 || undefined;
      const { architecture } = machine;
      return installRunsc({ source, expectedSha512, cacheDir, architecture, mainUri }, detail);
    });
    const recipePath = join(repositoryDir, 'images', `${DEFAULT_IMAGE}.json`);
    const image = await progress.step(`image ${DEFAULT_IMAGE}`, (detail) =>
      installImage({ recipePath, cacheDir, archive: () => archive(detail) }, detail),
    );
    const guestDir = await progress.step('guest programs', (detail) =>
      installFolder(
        {
          name: 'guest',
          sourceDir: join(repositoryDir, 'host-agent/guest'),
          artifacts: GUEST_ARTIFACTS,
          cacheDir,
        },
        detail,
      ),
    );
    const imagesDir = join(cacheDir, 'images');
    await progress.step(`root of image ${DEFAULT_IMAGE}`, (detail) =>
      installImageRoot({ imagesDir, digest: image.digest, guestDir }, detail),
    );
    const digestLibrary = await progress.step('digest library', (detail) =>
      installDigestLibrary({ repositoryDir, cacheDir }, detail),
    );
    const streamKeeperPath = await progress.step('stream keeper', (detail) =>
      installStreamKeeper({ repositoryDir, cacheDir }, detail),
    );
    return { runscPath, imagesDir, guestDir, digestLibrary, streamKeeperPath, image };
  });
}

/** Gives its path. */
export async function installDigestLibrary(
  { repositoryDir, cacheDir }: SetupPlaces,
  detail: (text: string) => void,
): Promise<Outcome<string>> {
  const sourceDir = join(repositoryDir, 'host-agent/digest');
  const { value, did } = await installFolder(
    { name: 'digest', sourceDir, artifacts: DIGEST_ARTIFACTS, cacheDir },
    detail,
  );
  return { value: join(value, DIGEST_LIBRARY), did };
}

/** Gives its path. */
export async function installStreamKeeper(
  { repositoryDir, cacheDir }: SetupPlaces,
  detail: (text: string) => void,
): Promise<Outcome<string>> {
  const sourceDir = join(repositoryDir, 'host-agent/stream-keeper');
  const { value, did } = await installFolder(
    { name: 'stream-keeper', sourceDir, artifacts: STREAM_KEEPER_ARTIFACTS, cacheDir },
    detail,
  );
  return { value: join(value, STREAM_KEEPER_PROGRAM), did };
}

/** Puts further images of the repository into the store, beside the one that every set-up has. */
export async function setUpImages(
  names: readonly string[],
  { repositoryDir, cacheDir }: SetupPlaces,
  progress: Progress,
): Promise<BuiltImage[]> {
  return withCache(cacheDir, progress, async ({ archive }) => {
    await progress.step('packages', installAptPackages);
    const images: BuiltImage[] = [];
    for (const name of names) {
      const recipePath = join(repositoryDir, 'images', `${name}.json`);
      const image = await progress.step(`image ${name}`, (detail) =>
        installImage({ recipePath, cacheDir, archive: () => archive(detail) }, detail),
      );
      images.push(image);
    }
    return images;
  });
}

export interface ImageToImport {
  source: ImageSource;
  name: string | undefined;
}

/** Puts an image that was built elsewhere into the store. */
export async function setUpImport(
  { source, name }: ImageToImport,
  { repositoryDir, cacheDir }: SetupPlaces,
  progress: Progress,
): Promise<ImportedImage> {
  return withCache(cacheDir, progress, async ({ machine: { architecture } }) => {
    if (source.kind === 'registry') {
      await progress.step('packages', (detail) => installAptPackages(detail, REGISTRY_PACKAGES));
    }
    const reservedNames = await recipeNames(join(repositoryDir, 'images'));
    const request = { source, name, reservedNames, cacheDir, architecture };
    return progress.step('image', async (detail) => {
      try {
        const value = await importImage(request, detail);
        return { value, did: importedText(value) };
      } catch (error: unknown) {
        throw error instanceof ImageRefusal ? new SetupFailure(error.message) : error;
      }
    });
  });
}

function importedText({ digest, unpacked, sizeBytes }: ImportedImage): string {
  const short = digest.slice(0, 19);
  if (unpacked === undefined) return `${short}, there already`;
  const { left_out: leftOut, set_id_removed: setIdRemoved } = unpacked;
  const notes = [
    `${short}, ${Math.round(sizeBytes / 1e6)} MB`,
    ...(leftOut > 0 ? [`${leftOut} device nodes or pipes left out`] : []),
    ...(setIdRemoved > 0 ? [`${setIdRemoved} set-id bits removed`] : []),
  ];
  return notes.join(', ');
}

type Cache = {
  machine: Machine;
  /** Asked for once, and only by a step that downloads. */
  archive: (detail: (text: string) => void) => Promise<DebianArchive>;
};

/** One set-up at a time writes to the cache folder. */
async function withCache<Value>(
  cacheDir: string,
  progress: Progress,
  work: (cache: Cache) => Promise<Value>,
): Promise<Value> {
  const machine = await progress.step('machine', async () => {
    await makeCacheDir(cacheDir);
    const value = await requireMachine(cacheDir);
    return { value, did: `Debian ${value.codename}, ${value.architecture}` };
  });
  const lock = await progress.step('cache', async (detail) => {
    const value = await waitForLock(join(cacheDir, 'lock'), (pid) =>
      detail(`waiting for set-up of process ${pid}`),
    );
    await removeLeftovers(join(cacheDir, 'work'));
    return { value, did: cacheDir };
  });
  try {
    let found: DebianArchive | undefined;
    return await work({
      machine,
      archive: async (detail) => {
        found ??= await debianArchive(() => updateAptLists(detail));
        return found;
      },
    });
  } finally {
    lock.release();
  }
}

/** What root runs comes from here, so nobody else may write to it. */
async function makeCacheDir(cacheDir: string): Promise<void> {
  requireRoot();
  await mkdir(cacheDir, { recursive: true, mode: 0o755 });
  const { uid, mode } = await stat(cacheDir);
  if (uid !== 0 || (mode & 0o022) !== 0) {
    throw new SetupFailure(`${cacheDir} must belong to root and be writable by root only`);
  }
}
