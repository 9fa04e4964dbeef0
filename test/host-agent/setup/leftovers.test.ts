import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { mountPointBelow, removeLeftovers } from '../../../host-agent/setup/leftovers.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

test('a half-built image is removed', async () => {
  const work = join(temporaryFolder(), 'work');
  mkdirSync(join(work, 'image-abc/rootfs'), { recursive: true });
  writeFileSync(join(work, 'image-abc/rootfs/file'), '');
  await removeLeftovers(work);
  expect(existsSync(work)).toBe(false);
});

test('nothing to remove is no failure', async () => {
  await expect(removeLeftovers(join(temporaryFolder(), 'absent'))).resolves.toBeUndefined();
});

test('a mount below the folder is found, one beside it is not', () => {
  const mounts = [
    '24 1 0:22 / /proc rw - proc proc rw',
    '90 1 0:6 / /cache/work/image-abc/rootfs/dev rw - devtmpfs devtmpfs rw',
    '91 1 0:6 / /cache/workshop rw - tmpfs tmpfs rw',
  ];
  expect(mountPointBelow(mounts.join('\n'), '/cache/work')).toBe('/cache/work/image-abc/rootfs/dev');
  expect(mountPointBelow([mounts[0], mounts[2]].join('\n'), '/cache/work')).toBeUndefined();
});
