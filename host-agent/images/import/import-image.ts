/** Puts an image that somebody else built into the image store: the one with this digest, or nothing. */
import { chmod, mkdir, mkdtemp, readFile, rename, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { treeManifest } from '../../setup/tree-manifest.ts';
import { IMAGE_FILE, type ImageFile, ImageFileSchema, imageDir, ROOTFS_DIR } from '../image-file.ts';
import { UNPACK_LIMITS, type UnpackLimits } from '../limits.ts';
import { ImageRefusal } from '../refusal.ts';
import { openImageStore } from '../store.ts';
import { type Unpacked, unpackLayers } from '../unpack/unpack.ts';
import { archiveBlobs } from './archive-blobs.ts';
import { requireBlob } from './blob-check.ts';
import type { ImageBlobs } from './blobs.ts';
import { imageEnvironment } from './environment.ts';
import { toolsOf } from './interpreters.ts';
import { layoutBlobs } from './layout-blobs.ts';
import { type ImageManifest, readConfig, readDocument } from './manifest.ts';
import { registryBlobs } from './registry-blobs.ts';
import { type ImageSource, imageNameOf } from './source.ts';

export interface ImportRequest {
  source: ImageSource;
  /** Without one, the last part of the repository's. */
  name: string | undefined;
  /** Names that mean other images. */
  reservedNames: readonly string[];
  cacheDir: string;
  /** As images call it. */
  architecture: 'amd64' | 'arm64';
  limits?: UnpackLimits;
}

export interface ImportedImage {
  name: string;
  digest: string;
  /** Undefined where the store had the image. */
  unpacked: Unpacked | undefined;
  sizeBytes: number;
  tools: readonly string[];
}

/** Throws an ImageRefusal where the image is not taken; nothing of it is left then. */
export async function importImage(
  request: ImportRequest,
  detail: (text: string) => void,
): Promise<ImportedImage> {
  const { source, cacheDir } = request;
  const name = requireName(request);
  const imagesDir = join(cacheDir, 'images');
  await requireUnknown(imagesDir, name, source.digest);
  const target = imageDir(imagesDir, name, source.digest);
  const before = await readImported(target);
  if (before !== undefined) return imported(before, undefined);

  const workDir = await makeWorkDir(cacheDir);
  try {
    const [file, unpacked] = await build({ ...request, name, workDir }, detail);
    // Left of one that was half removed.
    await rm(target, { recursive: true, force: true });
    await mkdir(dirname(target), { recursive: true });
    await rename(join(workDir, 'image'), target);
    return imported(file, unpacked);
  } finally {
    await rm(workDir, { recursive: true, force: true });
  }
}

async function build(
  request: ImportRequest & { name: string; workDir: string },
  detail: (text: string) => void,
): Promise<[ImageFile, Unpacked]> {
  const { source, name, workDir, architecture, limits = UNPACK_LIMITS } = request;
  detail('reading the manifest');
  const blobs = await openBlobs(source, workDir, limits);
  const { manifest, digest } = await findManifest(blobs, source.digest, architecture);
  await requireRoom(manifest, workDir, limits);
  detail(`fetching ${manifest.layers.length} layers`);
  const pathOf = await blobs.fetch(manifest, digest);
  for (const blob of [manifest.config, ...manifest.layers]) await requireBlob(pathOf(blob), blob);
  const config = readConfig(await readFile(pathOf(manifest.config)), manifest, architecture);

  detail('unpacking');
  const imagePath = join(workDir, 'image');
  await mkdir(imagePath);
  // A sandbox's own user has to pass through this folder to its root.
  await chmod(imagePath, 0o755);
  const rootfsPath = join(imagePath, ROOTFS_DIR);
  const layers = manifest.layers.map((layer, at) => ({
    path: pathOf(layer),
    diffSha256: (config.rootfs.diff_ids[at] ?? '').slice('sha256:'.length),
  }));
  const unpacked = await unpackLayers({ rootfsPath, layers, limits });
  const environment = imageEnvironment(config.config?.Env ?? []);
  const tree = await treeManifest(rootfsPath);
  const file = ImageFileSchema.parse({
    name,
    digest: source.digest,
    created_at: new Date().toISOString(),
    size_bytes: tree.sizeBytes,
    manifest_sha256: tree.sha256,
    packages: [],
    imported: {
      source: source.text,
      platform_digest: digest,
      tools: await toolsOf(rootfsPath, environment.PATH),
      environment,
    },
  });
  await writeFile(join(imagePath, IMAGE_FILE), `${JSON.stringify(file, null, 2)}\n`);
  return [file, unpacked];
}

async function openBlobs(source: ImageSource, workDir: string, limits: UnpackLimits): Promise<ImageBlobs> {
  switch (source.kind) {
    case 'registry':
      return registryBlobs({ ...source, workDir });
    case 'layout':
      return layoutBlobs(source.dir);
    case 'archive':
      return archiveBlobs(source.file, join(workDir, 'archive'), limits);
  }
}

/** An index is one step: an index of indexes is nothing that is built. */
async function findManifest(
  blobs: ImageBlobs,
  digest: string,
  architecture: string,
): Promise<{ manifest: ImageManifest; digest: string }> {
  const named = readDocument(await blobs.document(digest), digest, architecture);
  if (named.kind === 'manifest') return { manifest: named.manifest, digest };
  const own = named.descriptor.digest;
  const built = readDocument(await blobs.document(own), own, architecture);
  if (built.kind === 'manifest') return { manifest: built.manifest, digest: own };
  throw new ImageRefusal('the image is a list of lists');
}

async function requireRoom({ layers }: ImageManifest, dir: string, limits: UnpackLimits): Promise<void> {
  const compressedBytes = layers.reduce((sum, { size }) => sum + size, 0);
  if (compressedBytes > limits.maxBytes) {
    throw new ImageRefusal(`the image is larger than ${limits.maxBytes.toLocaleString('en')} bytes`);
  }
  const { bavail, bsize } = await statfs(dir);
  // Compressed once, and at least as much unpacked.
  if (2 * compressedBytes + limits.reservedBytes > bavail * bsize) {
    throw new ImageRefusal('there is not enough space on the disk for the image');
  }
}

function requireName({ source, name, reservedNames }: ImportRequest): string {
  const chosen = name ?? imageNameOf(source);
  if (chosen === undefined) {
    throw new ImageRefusal('the image needs a name: --name, letters, digits and dashes, a letter first');
  }
  if (reservedNames.includes(chosen)) {
    throw new ImageRefusal(
      `${chosen} is the name of an image that is built here; --name gives it another one`,
    );
  }
  return chosen;
}

/** One digest, one image: a grant names nothing else. */
async function requireUnknown(imagesDir: string, name: string, digest: string): Promise<void> {
  const known = (await openImageStore(imagesDir).list()).find((image) => image.digest === digest);
  if (known !== undefined && known.name !== name) {
    throw new ImageRefusal(`the image is there already, as ${known.name}`);
  }
}

async function readImported(dir: string): Promise<ImageFile | undefined> {
  try {
    await stat(join(dir, ROOTFS_DIR));
    return ImageFileSchema.parse(JSON.parse(await readFile(join(dir, IMAGE_FILE), 'utf8')));
  } catch {
    return undefined;
  }
}

function imported(file: ImageFile, unpacked: Unpacked | undefined): ImportedImage {
  const tools = ['file', ...(file.imported?.tools ?? [])];
  return { name: file.name, digest: file.digest, unpacked, sizeBytes: file.size_bytes, tools };
}

async function makeWorkDir(cacheDir: string): Promise<string> {
  const parent = join(cacheDir, 'work');
  await mkdir(parent, { recursive: true });
  return mkdtemp(join(parent, 'import-'));
}
