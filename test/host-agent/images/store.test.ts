import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { imageDir } from '../../../host-agent/images/image-file.ts';
import { openImageStore } from '../../../host-agent/images/store.ts';
import { addImage } from '../../fixtures/stored-image.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

const OLD = `sha256:${'a'.repeat(64)}`;
const NEW = `sha256:${'b'.repeat(64)}`;

function storeWithTwo(): string {
  const storeDir = temporaryFolder();
  addImage(storeDir, 'python', OLD, '2026-01-01T00:00:00Z');
  addImage(storeDir, 'python', NEW, '2026-02-01T00:00:00Z');
  return storeDir;
}

describe('an image store', () => {
  test('lists its images, newest first', async () => {
    const storeDir = storeWithTwo();
    const images = await openImageStore(storeDir).list();
    expect(images.map((image) => image.digest)).toEqual([NEW, OLD]);
    expect(images[0]).toMatchObject({
      name: 'python',
      rootfsPath: join(imageDir(storeDir, 'python', NEW), 'rootfs'),
    });
  });

  test('finds the image that a digest names, also an older one', async () => {
    expect(await openImageStore(storeWithTwo()).findByDigest(OLD)).toMatchObject({
      ok: true,
      value: { digest: OLD },
    });
  });

  test('finds the newest image of a name', async () => {
    expect(await openImageStore(storeWithTwo()).findByName('python')).toMatchObject({
      ok: true,
      value: { digest: NEW },
    });
  });

  test.each([
    ['a tag', 'python:latest'],
    ['a name', 'python'],
    ['a digest cut short', 'sha256:abc'],
    ['an upper-case digest', `sha256:${'A'.repeat(64)}`],
    ['a path', '../python'],
  ])('%s is no digest and is refused', async (_name, digest) => {
    expect(await openImageStore(storeWithTwo()).findByDigest(digest)).toMatchObject({
      ok: false,
      code: 'image_refused',
      detail: 'an image is named by its digest, sha256:<64 hex digits>',
    });
  });

  test('a digest that it does not hold is refused', async () => {
    const digest = `sha256:${'d'.repeat(64)}`;
    expect(await openImageStore(storeWithTwo()).findByDigest(digest)).toMatchObject({
      ok: false,
      code: 'image_refused',
      detail: `no image ${digest} on this host`,
    });
  });

  test('a name that it does not hold is not found', async () => {
    expect(await openImageStore(storeWithTwo()).findByName('ruby')).toMatchObject({
      ok: false,
      code: 'image_not_found',
    });
  });

  test('an image was used last when a session last started on it, and first when it was made', async () => {
    const store = openImageStore(storeWithTwo());
    const [image] = await store.list();
    expect(image).toMatchObject({ digest: NEW, lastUsedAt: '2026-02-01T00:00:00Z' });
    const beforeMs = Date.now() - 1_000;
    await store.markUsed({ name: 'python', digest: NEW });
    const [used, other] = await store.list();
    expect(Date.parse(used?.lastUsedAt ?? '')).toBeGreaterThan(beforeMs);
    expect(other?.lastUsedAt).toBe('2026-01-01T00:00:00Z');
  });

  test('an image that is gone is not made again by being used', async () => {
    const storeDir = storeWithTwo();
    const store = openImageStore(storeDir);
    rmSync(imageDir(storeDir, 'python', NEW), { recursive: true });
    await store.markUsed({ name: 'python', digest: NEW });
    expect(await store.list()).toMatchObject([{ digest: OLD }]);
  });

  test('a store that is not there holds nothing', async () => {
    expect(await openImageStore(join(temporaryFolder(), 'absent')).list()).toEqual([]);
  });

  test.each([
    ['without its root file system', (dir: string) => rmSync(join(dir, 'rootfs'), { recursive: true })],
    ['with a description cut short', (dir: string) => writeFileSync(join(dir, 'image.json'), '{"name":')],
    [
      'that lies under another digest than its own',
      (dir: string) =>
        writeFileSync(join(dir, 'image.json'), JSON.stringify({ name: 'python', digest: OLD })),
    ],
  ])('an image %s is not used', async (_name, damage) => {
    const storeDir = temporaryFolder();
    damage(addImage(storeDir, 'python', NEW, '2026-02-01T00:00:00Z'));
    expect(await openImageStore(storeDir).list()).toEqual([]);
    expect((await openImageStore(storeDir).findByDigest(NEW)).ok).toBe(false);
  });
});
