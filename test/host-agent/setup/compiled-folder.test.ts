import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  type FolderRequest,
  folderDigest,
  installFolder,
} from '../../../host-agent/setup/compiled-folder.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

function guestSources(): FolderRequest {
  const sourceDir = temporaryFolder();
  mkdirSync(join(sourceDir, 'kernels'));
  writeFileSync(join(sourceDir, 'word.h'), '#define WORD "guest"\n');
  writeFileSync(
    join(sourceDir, 'hello.c'),
    '#include <stdio.h>\n#include "word.h"\nint main(void) { puts(WORD); return 0; }\n',
  );
  writeFileSync(join(sourceDir, 'kernels/python.py'), 'print(1)\n');
  return {
    name: 'guest',
    sourceDir,
    cacheDir: temporaryFolder(),
    artifacts: [
      { source: 'hello.c', target: 'hello', compile: ['-static', '-Os', '-Wall', '-Werror'] },
      { source: 'kernels/python.py', target: 'kernels/python.py', compile: null },
    ],
  };
}
const install = (request: FolderRequest) => installFolder(request, () => {});

describe('the guest folder', () => {
  test('holds programs that run and kernels as they are', async () => {
    const { value } = await install(guestSources());
    expect(execFileSync(join(value, 'hello'), { encoding: 'utf8' })).toBe('guest\n');
    expect(readFileSync(join(value, 'kernels/python.py'), 'utf8')).toBe('print(1)\n');
  });

  test('is used again while it is whole', async () => {
    const request = guestSources();
    const first = await install(request);
    const second = await install(request);
    expect(second.value).toBe(first.value);
    expect(second.did).toContain('cached');
  });

  test.each([
    ['a changed program', (dir: string) => appendFileSync(join(dir, 'hello'), 'x')],
    ['a missing kernel', (dir: string) => rmSync(join(dir, 'kernels/python.py'))],
    ['a missing list', (dir: string) => rmSync(join(dir, 'artifacts.json'))],
  ])('is made anew after %s', async (_name, damage) => {
    const request = guestSources();
    const { value } = await install(request);
    damage(value);
    const again = await install(request);
    expect(again.did).not.toContain('cached');
    expect(execFileSync(join(again.value, 'hello'), { encoding: 'utf8' })).toBe('guest\n');
  });

  test.each([['word.h'], ['hello.c'], ['kernels/python.py']])(
    'has another name when %s changes',
    async (path) => {
      const request = guestSources();
      const before = await folderDigest(request);
      appendFileSync(join(request.sourceDir, path), '\n');
      expect(await folderDigest(request)).not.toBe(before);
    },
  );

  test('a program that does not compile fails with the compiler and leaves nothing', async () => {
    const request = guestSources();
    writeFileSync(join(request.sourceDir, 'hello.c'), 'int main(void) { return missing; }\n');
    await expect(install(request)).rejects.toThrow(/^cannot compile hello\.c: .*error/);
    expect(readdirSync(join(request.cacheDir, 'work'))).toEqual([]);
  });

  test('a missing source is named', async () => {
    const request = guestSources();
    rmSync(join(request.sourceDir, 'hello.c'));
    await expect(install(request)).rejects.toThrow('source hello.c is missing');
  });
});
