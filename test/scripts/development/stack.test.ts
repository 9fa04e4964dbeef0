import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { tryLock } from '../../../host-agent/process/lock-file.ts';
import { cgroupParent } from '../../../scripts/development/host-agent-child.ts';
import { startStack } from '../../../scripts/development/stack.ts';
import { locations } from '../../../scripts/locations.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const installation = {
  runscPath: '/absent/runsc',
  imagesDir: '/absent/images',
  guestDir: '/absent/guest',
  digestLibrary: '/absent/sha256.node',
  streamKeeperPath: '/absent/stream-keeper',
  image: { name: 'python', digest: `sha256:${'0'.repeat(64)}`, rootfsPath: '/absent/rootfs' },
};

test('a second start on the same state folder is refused with the number of the first', async () => {
  const stateDir = temporaryFolder();
  expect(tryLock(join(stateDir, 'lock')).held).toBe(true);
  await expect(
    startStack({ locations: { ...locations({}), stateDir }, installation, port: 0 }),
  ).rejects.toThrow(`already running on ${stateDir} (process ${process.pid})`);
});

test('a start on a busy port is refused and leaves the state folder free', async () => {
  const stateDir = temporaryFolder();
  const server = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  await expect(
    startStack({ locations: { ...locations({}), stateDir }, installation, port: address.port }),
  ).rejects.toThrow(`port ${address.port} is in use; set PORT to another one`);
  expect(existsSync(join(stateDir, 'lock'))).toBe(false);
  expect(existsSync(join(stateDir, 'dev.json'))).toBe(false);
});

test('two state folders have two cgroup parents', () => {
  expect(cgroupParent('/a')).toMatch(/^sandgate-[0-9a-f]{12}$/);
  expect(cgroupParent('/a')).not.toBe(cgroupParent('/b'));
});
