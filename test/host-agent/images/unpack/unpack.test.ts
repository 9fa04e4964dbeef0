import {
  closeSync,
  existsSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { unpackLayers } from '../../../../host-agent/images/unpack/unpack.ts';
import { tarEntry } from '../../../fixtures/tar.ts';
import { temporaryFolder } from '../../../scripts/temporary-folder.ts';

const SIZE = 512 * 1024 ** 2;

/** A layer that takes a while, and no space on the disk before it is unpacked. */
function slowLayer(path: string): void {
  const file = openSync(path, 'wx');
  writeSync(file, tarEntry({ name: 'zeros', size: SIZE }));
  ftruncateSync(file, 512 + SIZE + 1024);
  closeSync(file);
}

interface Observed {
  user: string | undefined;
  groups: string | undefined;
  capabilities: string | undefined;
  noNewPrivileges: string | undefined;
  hasOwnNetwork: boolean;
}

/** Of the process whose current folder is this one. */
function observe(dir: string): Observed | undefined {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('unpack/main.ts')) continue;
      if (!existsSync(`/proc/${pid}/cwd/zeros`) || !existsSync(join(dir, 'zeros'))) continue;
      const status = readFileSync(`/proc/${pid}/status`, 'utf8');
      const field = (name: string) => new RegExp(`^${name}:(.*)$`, 'm').exec(status)?.[1]?.trim();
      return {
        user: field('Uid'),
        groups: field('Groups'),
        capabilities: [field('CapEff'), field('CapPrm'), field('CapInh'), field('CapAmb')].join(),
        noNewPrivileges: field('NoNewPrivs'),
        hasOwnNetwork:
          readFileSync(`/proc/${pid}/net/dev`, 'utf8')
            .split('\n')
            .filter((line) => line.includes(':')).length === 1,
      };
    } catch {
      // It has ended.
    }
  }
  return undefined;
}

test('layers are unpacked by a process that may do nothing else', async () => {
  const dir = temporaryFolder();
  const rootfsPath = join(dir, 'rootfs');
  const path = join(dir, 'layer');
  slowLayer(path);
  const limits = { maxBytes: 2 * SIZE, maxEntries: 10, reservedBytes: 0 };
  // The digest is looked at when all is read, so the process is seen at its work.
  let ended = false;
  const unpacked = unpackLayers({ rootfsPath, layers: [{ path, diffSha256: '0'.repeat(64) }], limits })
    .catch((error: unknown) => error)
    .finally(() => {
      ended = true;
    });
  let observed: Observed | undefined;
  while (!ended && observed === undefined) {
    observed = observe(rootfsPath);
    await wait(2);
  }
  expect(await unpacked).toMatchObject({ message: 'a layer is not the one that the image names' });
  const none = '0'.repeat(16);
  expect(observed).toEqual({
    user: '99999\t99999\t99999\t99999',
    groups: '',
    capabilities: [none, none, none, none].join(),
    noNewPrivileges: '1',
    hasOwnNetwork: true,
  });
});
