import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { IMAGE_FILE, imageDir, ROOTFS_DIR } from '../../../host-agent/images/image-file.ts';
import { openImageStore } from '../../../host-agent/images/store.ts';
import { installImage, readRecipe } from '../../../host-agent/setup/image.ts';
import { recipeDigest } from '../../../host-agent/setup/image-recipe.ts';
import { treeManifest } from '../../../host-agent/setup/tree-manifest.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

const recipePath = join(import.meta.dirname, '../../../images/python.json');

async function keepImage(imagesDir: string, digest: string, createdAt: string): Promise<void> {
  const dir = imageDir(imagesDir, 'python', digest);
  await mkdir(join(dir, ROOTFS_DIR, 'bin'), { recursive: true });
  const { sha256 } = await treeManifest(join(dir, ROOTFS_DIR));
  const file = {
    name: 'python',
    digest,
    created_at: createdAt,
    size_bytes: 0,
    manifest_sha256: sha256,
    packages: [],
  };
  await writeFile(join(dir, IMAGE_FILE), JSON.stringify(file));
}

test('a name means the image of the recipe that is installed, though one of another recipe is newer', async () => {
  const cacheDir = temporaryFolder();
  const imagesDir = join(cacheDir, 'images');
  const digest = recipeDigest(await readRecipe(recipePath));
  const other = `sha256:${'a'.repeat(64)}`;
  await keepImage(imagesDir, digest, '2026-01-01T00:00:00.000Z');
  await keepImage(imagesDir, other, '2026-02-01T00:00:00.000Z');
  const store = openImageStore(imagesDir);
  expect(await store.findByName('python')).toMatchObject({ value: { digest: other } });
  const archive = () => Promise.reject(new Error('nothing is built'));
  const installed = await installImage({ recipePath, cacheDir, archive }, () => {});
  expect(installed.did).toContain('cached');
  expect(await store.findByName('python')).toMatchObject({
    value: { digest, createdAt: '2026-01-01T00:00:00.000Z' },
  });
});
