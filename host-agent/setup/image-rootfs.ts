/** Turns what mmdebstrap made into the root file system of an image, as its recipe says. */
import { chmod, lstat, mkdir, opendir, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { SetupFailure } from './failure.ts';
import type { ImageRecipe } from './image-recipe.ts';

const SET_ID_BITS = 0o6000;
const MODE_BITS = 0o7777;

export async function finishRootfs(rootfs: string, recipe: ImageRecipe): Promise<void> {
  const inside = (path: string): Promise<string> => pathInside(rootfs, path);
  // The runtime brings its own /dev; device nodes have no place in an image.
  for (const path of [...recipe.remove, '/dev'])
    await rm(await inside(path), { recursive: true, force: true });
  await mkdir(join(rootfs, 'dev'), { mode: 0o755 });
  for (const directory of recipe.directories) {
    const path = await inside(directory.path);
    await mkdir(path, { recursive: true });
    await chmod(path, Number.parseInt(directory.mode, 8));
  }
  for (const link of recipe.links) await symlink(link.target, await inside(link.path));
  for (const file of recipe.files) {
    const path = await inside(file.path);
    await writeFile(path, file.text);
    await chmod(path, 0o644);
  }
  await sweepTree(rootfs);
}

/** The path on this machine; refuses one that passes through a symbolic link, which could lead out of the image. */
async function pathInside(rootfs: string, path: string): Promise<string> {
  const parent = dirname(path);
  let walked = rootfs;
  for (const component of parent.split('/').filter((part) => part !== '')) {
    walked = join(walked, component);
    const found = await lstat(walked).catch(() => undefined);
    if (found === undefined) break;
    if (!found.isDirectory())
      throw new SetupFailure(`image recipe: ${path} passes through ${component}, not a folder`);
  }
  return join(rootfs, path);
}

/** Takes the set-id bits off every file, and device nodes, sockets and pipes out of the tree. */
async function sweepTree(dir: string): Promise<void> {
  for await (const entry of await opendir(dir)) {
    const path = join(dir, entry.name);
    if (entry.isSymbolicLink()) continue;
    if (!entry.isFile() && !entry.isDirectory()) {
      await rm(path);
      continue;
    }
    const { mode } = await lstat(path);
    if ((mode & SET_ID_BITS) !== 0) await chmod(path, mode & MODE_BITS & ~SET_ID_BITS);
    if (entry.isDirectory()) await sweepTree(path);
  }
}
