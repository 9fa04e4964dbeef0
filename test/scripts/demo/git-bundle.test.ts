import { spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { gitBundle } from '../../../scripts/demo/git-bundle.ts';

const commit = {
  branch: 'main',
  author: 'Demo <demo@localhost>',
  message: 'First',
  atS: 1_767_225_600,
  files: new Map([
    ['a/deep/file.txt', Buffer.from('x'.repeat(70_000))],
    ['a.txt', Buffer.from('')],
    ['a0', Buffer.from('é\n')],
  ]),
};

test('a bundle is the same for the same content', () => {
  expect(gitBundle(commit).equals(gitBundle(commit))).toBe(true);
});

const hasGit = spawnSync('git', ['--version']).status === 0;

test.runIf(hasGit)('a bundle is cloned and checked by git itself', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sandgate-bundle-'));
  try {
    const file = join(folder, 'repository.bundle');
    await writeFile(file, gitBundle(commit));
    const git = (...args: string[]) => spawnSync('git', args, { cwd: folder, encoding: 'utf8' });
    expect(git('clone', '-q', file, 'clone')).toMatchObject({ status: 0 });
    expect(git('-C', 'clone', 'fsck', '--strict')).toMatchObject({ status: 0 });
    expect(git('-C', 'clone', 'log', '--format=%an %s %ct').stdout).toBe('Demo First 1767225600\n');
    for (const [path, content] of commit.files) {
      expect((await readFile(join(folder, 'clone', path))).equals(content)).toBe(true);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
