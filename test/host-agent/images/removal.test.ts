import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { imageDir } from '../../../host-agent/images/image-file.ts';
import { imagesToPrune, removeImage } from '../../../host-agent/images/removal.ts';
import type { Image } from '../../../host-agent/images/store.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

const IMAGE = { name: 'tested', digest: `sha256:${'a'.repeat(64)}` };

function places(): { imagesDir: string; workDir: string; dir: string } {
  const root = temporaryFolder();
  const imagesDir = join(root, 'images');
  const dir = imageDir(imagesDir, IMAGE.name, IMAGE.digest);
  mkdirSync(join(dir, 'rootfs'), { recursive: true });
  return { imagesDir, workDir: join(root, 'work'), dir };
}

describe('removing an image', () => {
  test('takes it away before it asks whether a sandbox uses it, so that none comes meanwhile', async () => {
    const { dir, ...rest } = places();
    const isRemoved = await removeImage(rest, IMAGE, async (digest) => {
      expect(digest).toBe(IMAGE.digest);
      expect(existsSync(dir)).toBe(false);
      return false;
    });
    expect(isRemoved).toBe(true);
    expect(readdirSync(rest.workDir)).toEqual([]);
  });

  test('puts it back where a sandbox uses it', async () => {
    const { dir, ...rest } = places();
    expect(await removeImage(rest, IMAGE, async () => true)).toBe(false);
    expect(readdirSync(dir)).toEqual(['rootfs']);
    expect(readdirSync(rest.workDir)).toEqual([]);
  });

  test('puts it back where nobody can say whether one does', async () => {
    const { dir, ...rest } = places();
    const asked = removeImage(rest, IMAGE, () => Promise.reject(new Error('no answer')));
    await expect(asked).rejects.toThrow('no answer');
    expect(readdirSync(dir)).toEqual(['rootfs']);
  });
});

describe('pruning', () => {
  const nowMs = Date.parse('2026-06-30T00:00:00Z');
  const image = (name: string, lastUsedAt: string): Image => ({
    name,
    digest: `sha256:${name}`,
    rootfsPath: '',
    builtAt: undefined,
    createdAt: '2026-01-01T00:00:00Z',
    namedAt: '2026-01-01T00:00:00Z',
    sizeBytes: 1,
    lastUsedAt,
    environment: {},
  });

  test('takes what was not used for so long, and never the newest of a name that every host has', () => {
    const used = image('used', '2026-06-29T00:00:00Z');
    const unused = image('unused', '2026-05-30T00:00:00Z');
    const newest = image('python', '2026-01-02T00:00:00Z');
    const former = image('python', '2026-01-01T00:00:00Z');
    const rule = { unusedDays: 30, keptNames: ['python'], nowMs };
    expect(imagesToPrune([used, unused, newest, former], rule)).toEqual([unused, former]);
  });
});
