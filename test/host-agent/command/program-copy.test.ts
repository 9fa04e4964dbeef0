import { spawnSync } from 'node:child_process';
import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { sourceDir } from '../../../host-agent/command/layout.ts';
import { copyProgram, HOST_PACKAGES } from '../../../host-agent/command/program-copy.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

const TIMEOUT_MS = 120_000;

test('the packages that are installed are those that the agent imports', async () => {
  const imported = new Set<string>();
  for await (const path of glob('{host-agent,shared}/**/*.ts', { cwd: sourceDir() })) {
    const text = await readFile(join(sourceDir(), path), 'utf8');
    for (const [, name = ''] of text.matchAll(/^(?:import|export)[^'"]*?from\s+'([^'.][^']*)'/gms)) {
      if (!name.startsWith('node:'))
        imported.add(
          name
            .split('/')
            .slice(0, name.startsWith('@') ? 2 : 1)
            .join('/'),
        );
    }
  }
  expect([...imported].sort()).toEqual([...HOST_PACKAGES].sort());
});

test(
  'a copy runs without the folder it was made from',
  async () => {
    const target = join(temporaryFolder(), 'program');
    await copyProgram(sourceDir(), target);
    const { status, stderr, stdout } = spawnSync(
      join(target, 'node'),
      [join(target, 'host-agent/sandgate-host.ts'), 'images', '--root', target],
      { encoding: 'utf8', cwd: target, env: {} },
    );
    expect({ status, stderr, stdout }).toEqual({ status: 0, stderr: '', stdout: 'no images\n' });
    const main = spawnSync(join(target, 'node'), [join(target, 'host-agent/main.ts')], {
      encoding: 'utf8',
      env: {},
    });
    expect(main.stderr).toMatch(/^sandgate host-agent: SANDGATE_STATE_DIR: .*\n$/);
  },
  TIMEOUT_MS,
);
