/** Puts an image into the image store, built from its recipe unless the store has it already. */
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { IMAGE_FILE, ImageFileSchema, imageDir, ROOTFS_DIR } from '../images/image-file.ts';
import type { DebianArchive } from './debian-archive.ts';
import { SetupFailure } from './failure.ts';
import { buildImage } from './image-build.ts';
import { type ImageRecipe, ImageRecipeSchema, recipeDigest } from './image-recipe.ts';
import type { Outcome } from './step.ts';
import { treeManifest } from './tree-manifest.ts';

export type BuiltImage = { name: string; digest: string; rootfsPath: string };
export type ImageRequest = {
  recipePath: string;
  cacheDir: string;
  archive: () => Promise<DebianArchive>;
  signal?: AbortSignal;
};

/** The images that the recipes of a folder make. */
export async function recipeNames(recipesDir: string): Promise<string[]> {
  const files = await readdir(recipesDir);
  return files.flatMap((file) => (file.endsWith('.json') ? [file.slice(0, -'.json'.length)] : [])).sort();
}

export async function readRecipe(path: string): Promise<ImageRecipe> {
  const parsed = ImageRecipeSchema.safeParse(JSON.parse(await readFile(path, 'utf8')));
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new SetupFailure(
    `${path}: ${issue?.path.join('.') ?? ''} ${issue?.message ?? 'is not an image recipe'}`,
  );
}

export async function installImage(
  request: ImageRequest,
  detail: (text: string) => void,
): Promise<Outcome<BuiltImage>> {
  const recipe = await readRecipe(request.recipePath);
  const digest = recipeDigest(recipe);
  const target = imageDir(join(request.cacheDir, 'images'), recipe.name, digest);
  const value = { name: recipe.name, digest, rootfsPath: join(target, ROOTFS_DIR) };
  if (await isIntact(target)) {
    await giveName(target);
    return { value, did: `${digest.slice(0, 19)}, cached` };
  }

  const workDir = await makeWorkDir(request.cacheDir);
  try {
    const rootfs = join(workDir, ROOTFS_DIR);
    await mkdir(rootfs);
    const signal = request.signal === undefined ? {} : { signal: request.signal };
    const packages = await buildImage(
      { recipe, archive: await request.archive(), rootfs, ...signal },
      detail,
    );
    const manifest = await treeManifest(rootfs);
    const file = ImageFileSchema.parse({
      name: recipe.name,
      digest,
      created_at: new Date().toISOString(),
      size_bytes: manifest.sizeBytes,
      manifest_sha256: manifest.sha256,
      packages,
    });
    await writeFile(join(workDir, IMAGE_FILE), `${JSON.stringify(file, null, 2)}\n`);
    await rm(target, { recursive: true, force: true });
    await mkdir(dirname(target), { recursive: true });
    await rename(workDir, target);
    return { value, did: `${digest.slice(0, 19)}, built, ${Math.round(manifest.sizeBytes / 1e6)} MB` };
  } finally {
    await rm(workDir, { recursive: true, force: true });
  }
}

async function isIntact(dir: string): Promise<boolean> {
  try {
    const file = ImageFileSchema.parse(JSON.parse(await readFile(join(dir, IMAGE_FILE), 'utf8')));
    return (await treeManifest(join(dir, ROOTFS_DIR))).sha256 === file.manifest_sha256;
  } catch {
    return false;
  }
}

/** The name means the image of the recipe that is installed, also where one of another recipe was built after it. */
async function giveName(dir: string): Promise<void> {
  const others = await readdir(dirname(dir));
  const times = await Promise.all(
    others.filter((name) => name !== basename(dir)).map((name) => namedAt(join(dirname(dir), name))),
  );
  const path = join(dir, IMAGE_FILE);
  const file = ImageFileSchema.parse(JSON.parse(await readFile(path, 'utf8')));
  const own = file.named_at ?? file.created_at;
  if (times.every((time) => time === undefined || time < own)) return;
  const named = { ...file, named_at: new Date().toISOString() };
  await writeFile(`${path}.new`, `${JSON.stringify(named, null, 2)}\n`);
  await rename(`${path}.new`, path);
}

async function namedAt(dir: string): Promise<string | undefined> {
  try {
    const file = ImageFileSchema.parse(JSON.parse(await readFile(join(dir, IMAGE_FILE), 'utf8')));
    return file.named_at ?? file.created_at;
  } catch {
    return undefined;
  }
}

async function makeWorkDir(cacheDir: string): Promise<string> {
  const parent = join(cacheDir, 'work');
  await mkdir(parent, { recursive: true });
  const dir = await mkdtemp(join(parent, 'image-'));
  // A sandbox's own user has to pass through this folder to its root.
  await chmod(dir, 0o755);
  return dir;
}
