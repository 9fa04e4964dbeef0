import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { ImageRecipe } from '../../../host-agent/setup/image-recipe.ts';
import { finishRootfs } from '../../../host-agent/setup/image-rootfs.ts';
import { treeManifest } from '../../../host-agent/setup/tree-manifest.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

const RECIPE: ImageRecipe = {
  format: 1,
  name: 'small',
  suite: 'bookworm',
  pockets: [],
  variant: 'minbase',
  components: ['main'],
  packages: [],
  remove: ['/usr/share/doc'],
  directories: [
    { path: '/tmp', mode: '1777' },
    { path: '/dev/shm', mode: '0755' },
  ],
  links: [{ path: '/usr/bin/python', target: 'python3' }],
  files: [{ path: '/etc/hosts', text: '127.0.0.1 localhost\n' }],
};

function rootfs(): string {
  const dir = temporaryFolder();
  for (const path of ['usr/bin', 'usr/share/doc/bash', 'etc', 'dev'])
    mkdirSync(join(dir, path), { recursive: true });
  return dir;
}

describe('finishing a root file system', () => {
  test('removes, makes folders with their modes, links and files', async () => {
    const dir = rootfs();
    await finishRootfs(dir, RECIPE);
    expect(existsSync(join(dir, 'usr/share/doc'))).toBe(false);
    expect(statSync(join(dir, 'tmp')).mode & 0o7777).toBe(0o1777);
    expect(statSync(join(dir, 'dev/shm')).isDirectory()).toBe(true);
    expect(readlinkSync(join(dir, 'usr/bin/python'))).toBe('python3');
    expect(readFileSync(join(dir, 'etc/hosts'), 'utf8')).toBe('127.0.0.1 localhost\n');
  });

  test('takes set-id bits off and keeps the other bits', async () => {
    const dir = rootfs();
    const program = join(dir, 'usr/bin/su');
    writeFileSync(program, '');
    chmodSync(program, 0o6755);
    await finishRootfs(dir, RECIPE);
    expect(statSync(program).mode & 0o7777).toBe(0o755);
  });

  test('leaves no named pipe or other special file', async () => {
    const dir = rootfs();
    execFileSync('mkfifo', [join(dir, 'etc/pipe')]);
    await finishRootfs(dir, RECIPE);
    expect(existsSync(join(dir, 'etc/pipe'))).toBe(false);
  });

  test('refuses a path that a symbolic link leads out of the image', async () => {
    const dir = rootfs();
    const outside = temporaryFolder();
    writeFileSync(join(outside, 'precious'), 'kept');
    symlinkSync(outside, join(dir, 'opt'));
    await expect(finishRootfs(dir, { ...RECIPE, remove: ['/opt/precious'] })).rejects.toThrow(
      'image recipe: /opt/precious passes through opt, not a folder',
    );
    expect(readFileSync(join(outside, 'precious'), 'utf8')).toBe('kept');
  });

  test('does not follow a symbolic link that the image itself holds when it sweeps', async () => {
    const dir = rootfs();
    const outside = join(temporaryFolder(), 'program');
    writeFileSync(outside, '');
    chmodSync(outside, 0o4755);
    symlinkSync(outside, join(dir, 'usr/bin/elsewhere'));
    await finishRootfs(dir, RECIPE);
    expect(statSync(outside).mode & 0o7777).toBe(0o4755);
  });
});

describe('the manifest of a tree', () => {
  test.each([
    ['a file that is gone', 'rm etc/hosts'],
    ['a file that grew', 'echo more >> etc/hosts'],
    ['a mode that changed', 'chmod 600 etc/hosts'],
    ['a link that points elsewhere', 'ln -sfn /etc usr/bin/python'],
    ['a file that was added', 'touch etc/added'],
  ])('notices %s', async (_name, command) => {
    const dir = rootfs();
    await finishRootfs(dir, RECIPE);
    const before = await treeManifest(dir);
    expect(await treeManifest(dir)).toEqual(before);
    execFileSync('sh', ['-c', command], { cwd: dir });
    expect((await treeManifest(dir)).sha256).not.toBe(before.sha256);
  });
});
