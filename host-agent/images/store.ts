/** The images this host has, found by digest or by name. Set-up and import put them there whole, or not at all. */
import { readdir, readFile, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { ImageDigestSchema } from '../../shared/ids.ts';
import {
  IMAGE_FILE,
  IMAGE_NAME_PATTERN,
  type ImageFile,
  ImageFileSchema,
  imageDir,
  LAST_USE_FILE,
  ROOTFS_DIR,
} from './image-file.ts';

export type Image = {
  name: string;
  digest: string;
  rootfsPath: string;
  createdAt: string;
  /** When its tree was built on this host; undefined where it was imported. */
  builtAt: string | undefined;
  /** Of several of one name the latest is meant by it. */
  namedAt: string;
  sizeBytes: number;
  /** When a session last started on it; when it was made, if none ever did. */
  lastUsedAt: string;
  /** Variables that its sandboxes have beside those of every sandbox. */
  environment: Readonly<Record<string, string>>;
};

export type ImageStore = {
  /** Every usable image, newest first. */
  list: () => Promise<Image[]>;
  /** The image a grant names. Only a full digest names one: a tag is refused. */
  findByDigest: (digest: string) => Promise<Outcome<Image>>;
  /** The newest image of that name. */
  findByName: (name: string) => Promise<Outcome<Image>>;
  /** A session starts on it. Never fails: a time that is not written down makes an image look unused, no more. */
  markUsed: (image: Pick<Image, 'name' | 'digest'>) => Promise<void>;
};

export function openImageStore(storeDir: string): ImageStore {
  const list = async (): Promise<Image[]> => {
    const images: Image[] = [];
    for (const name of await folderNames(storeDir, IMAGE_NAME_PATTERN)) {
      for (const hex of await folderNames(join(storeDir, name), /^[0-9a-f]{64}$/)) {
        const image = await readImage(storeDir, name, `sha256:${hex}`);
        if (image !== undefined) images.push(image);
      }
    }
    return images.sort((left, right) => right.namedAt.localeCompare(left.namedAt));
  };
  return {
    list,
    async findByDigest(digest) {
      if (!ImageDigestSchema.safeParse(digest).success) {
        return failure('image_refused', 'an image is named by its digest, sha256:<64 hex digits>');
      }
      for (const name of await folderNames(storeDir, IMAGE_NAME_PATTERN)) {
        const image = await readImage(storeDir, name, digest);
        if (image !== undefined) return success(image);
      }
      return failure('image_refused', `no image ${digest} on this host`);
    },
    async findByName(name) {
      const image = (await list()).find((candidate) => candidate.name === name);
      return image === undefined
        ? failure('image_not_found', 'no image of that name on this host')
        : success(image);
    },
    async markUsed({ name, digest }) {
      const path = join(imageDir(storeDir, name, digest), LAST_USE_FILE);
      const now = new Date();
      // An image that is being removed must not come back as a folder: nothing is made above the file.
      await utimes(path, now, now)
        .catch(() => writeFile(path, ''))
        .catch(() => undefined);
    },
  };
}

/** Undefined for anything that is not a whole image, such as a folder somebody emptied. */
async function readImage(storeDir: string, name: string, digest: string): Promise<Image | undefined> {
  const dir = imageDir(storeDir, name, digest);
  const file = await readImageFile(join(dir, IMAGE_FILE));
  if (file === undefined || file.name !== name || file.digest !== digest) return undefined;
  const rootfsPath = join(dir, ROOTFS_DIR);
  const found = await stat(rootfsPath).catch(() => undefined);
  if (found?.isDirectory() !== true) return undefined;
  const used = await stat(join(dir, LAST_USE_FILE)).catch(() => undefined);
  return {
    name,
    digest,
    rootfsPath,
    createdAt: file.created_at,
    builtAt: file.imported === undefined ? file.created_at : undefined,
    namedAt: file.named_at ?? file.created_at,
    sizeBytes: file.size_bytes,
    lastUsedAt: used?.mtime.toISOString() ?? file.created_at,
    environment: file.imported?.environment ?? {},
  };
}

async function readImageFile(path: string): Promise<ImageFile | undefined> {
  try {
    return ImageFileSchema.safeParse(JSON.parse(await readFile(path, 'utf8'))).data;
  } catch {
    return undefined;
  }
}

async function folderNames(dir: string, pattern: RegExp): Promise<string[]> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => []);
  return entries
    .filter((entry) => entry.isDirectory() && pattern.test(entry.name))
    .map((entry) => entry.name);
}
