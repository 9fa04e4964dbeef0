/** F31: an image that cannot be had. */
import { existsSync } from 'node:fs';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openImageStore } from '../../../host-agent/images/store.ts';
import { installImage } from '../../../host-agent/setup/image.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

const RECIPE = {
  format: 1,
  name: 'absent',
  suite: 'bookworm',
  pockets: [],
  variant: 'essential',
  components: ['main'],
  packages: ['bash'],
  remove: [],
  directories: [],
  links: [],
  files: [],
};
const NOWHERE = 'http://127.0.0.1:9/debian';
const canBuild = process.getuid?.() === 0 && existsSync('/usr/bin/mmdebstrap');

test.skipIf(!canBuild)(
  'F31 a build without its packages fails with the reason and leaves nothing',
  async () => {
    const cacheDir = temporaryFolder();
    const recipePath = join(cacheDir, 'absent.json');
    await writeFile(recipePath, JSON.stringify(RECIPE));
    const archive = async () => ({ mainUri: NOWHERE, securityUri: NOWHERE });
    await expect(installImage({ recipePath, cacheDir, archive }, () => {})).rejects.toThrow(
      /^mmdebstrap could not build image absent: /,
    );
    expect(await readdir(join(cacheDir, 'work'))).toEqual([]);
    expect(await openImageStore(join(cacheDir, 'images')).list()).toEqual([]);
  },
);

test('F31 an image whose folder is not that of its digest is not offered', async () => {
  const storeDir = temporaryFolder();
  const dir = join(storeDir, 'python', 'ab'.repeat(32));
  await mkdir(join(dir, 'rootfs'), { recursive: true });
  await writeFile(
    join(dir, 'image.json'),
    JSON.stringify({
      name: 'python',
      digest: `sha256:${'cd'.repeat(32)}`,
      created_at: new Date().toISOString(),
      size_bytes: 1,
      manifest_sha256: 'ef'.repeat(32),
      packages: [],
    }),
  );
  const store = openImageStore(storeDir);
  expect(await store.list()).toEqual([]);
  for (const half of ['ab', 'cd']) {
    const found = await store.findByDigest(`sha256:${half.repeat(32)}`);
    expect(found).toMatchObject({ ok: false, code: 'image_refused' });
  }
});
