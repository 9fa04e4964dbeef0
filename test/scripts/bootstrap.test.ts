import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { temporaryFolder } from './temporary-folder.ts';

const BOOTSTRAP = new URL('../../scripts/bootstrap.mjs', import.meta.url).pathname;
/** Stands for npm ci: says it ran, then does what an install does last. */
const WORKING_NPM =
  '#!/bin/sh\necho "$@" > npm-ran\nmkdir -p node_modules/.bin\ntouch node_modules/.bin/node\necho {} > node_modules/.package-lock.json\n';

type Checkout = { dir: string; bin: string };

function checkout(npm: string | undefined): Checkout {
  const dir = temporaryFolder();
  const bin = join(dir, 'bin');
  mkdirSync(join(dir, 'scripts'));
  mkdirSync(bin);
  copyFileSync(BOOTSTRAP, join(dir, 'scripts/bootstrap.mjs'));
  writeFileSync(join(dir, 'package.json'), '{"type":"module"}');
  writeFileSync(join(dir, 'package-lock.json'), '{}');
  if (npm !== undefined) {
    writeFileSync(join(bin, 'npm'), npm);
    chmodSync(join(bin, 'npm'), 0o755);
  }
  return { dir, bin };
}

function bootstrap(
  { dir, bin }: Checkout,
  path = `${bin}:/bin:/usr/bin`,
): { status: number | null; stderr: string } {
  const { status, stderr } = spawnSync(process.execPath, [join(dir, 'scripts/bootstrap.mjs')], {
    env: { PATH: path },
    encoding: 'utf8',
  });
  return { status, stderr };
}

function installedAt({ dir }: Checkout, secondsAfterLockfile: number): void {
  const lockfileS = 1_700_000_000;
  const installed = join(dir, 'node_modules/.package-lock.json');
  mkdirSync(join(dir, 'node_modules'), { recursive: true });
  writeFileSync(installed, '{}');
  utimesSync(join(dir, 'package-lock.json'), lockfileS, lockfileS);
  utimesSync(installed, lockfileS + secondsAfterLockfile, lockfileS + secondsAfterLockfile);
}

describe('when npm ci runs', () => {
  test('a checkout without node_modules is installed', () => {
    const place = checkout(WORKING_NPM);
    expect(bootstrap(place).status).toBe(0);
    expect(existsSync(join(place.dir, 'npm-ran'))).toBe(true);
  });

  test('an install older than the lockfile is made anew', () => {
    const place = checkout(WORKING_NPM);
    installedAt(place, -1);
    expect(bootstrap(place).status).toBe(0);
    expect(existsSync(join(place.dir, 'npm-ran'))).toBe(true);
  });

  test('an install newer than the lockfile is left alone', () => {
    const place = checkout(WORKING_NPM);
    installedAt(place, 1);
    expect(bootstrap(place).status).toBe(0);
    expect(existsSync(join(place.dir, 'npm-ran'))).toBe(false);
  });

  test('an install that was cut before npm wrote its lockfile is made anew', () => {
    const place = checkout(WORKING_NPM);
    mkdirSync(join(place.dir, 'node_modules/half'), { recursive: true });
    expect(bootstrap(place).status).toBe(0);
    expect(existsSync(join(place.dir, 'npm-ran'))).toBe(true);
  });

  test('npm is not taken from the node_modules that it is about to delete', () => {
    const place = checkout(WORKING_NPM);
    const inside = join(place.dir, 'node_modules/.bin');
    mkdirSync(inside, { recursive: true });
    writeFileSync(join(inside, 'npm'), '#!/bin/sh\nexit 9\n', { mode: 0o755 });
    expect(bootstrap(place, `${inside}:${place.bin}:/bin:/usr/bin`).status).toBe(0);
  });
});

describe('what a failure says', () => {
  test.each([
    ['no space', 'echo "npm error code ENOSPC" >&2; exit 1', /^sandgate: no space left on the disk/],
    ['no network', 'echo "npm error code EAI_AGAIN" >&2; exit 1', /^sandgate: no network: npm cannot reach/],
    [
      'a stale lockfile',
      'echo "npm error code EUSAGE" >&2; exit 1',
      /^sandgate: npm ci failed: npm error code EUSAGE/,
    ],
    ['silence', 'exit 3', /^sandgate: npm ci failed: exit code 3/],
  ])('%s is one line', (_name, body, line) => {
    const { status, stderr } = bootstrap(checkout(`#!/bin/sh\n${body}\n`));
    expect(status).toBe(1);
    expect(stderr).toMatch(line);
    expect(stderr.trim().split('\n')).toHaveLength(1);
  });

  test('a machine that the lockfile has no Node for is told so', () => {
    const place = checkout('#!/bin/sh\nmkdir -p node_modules\n');
    const { status, stderr } = bootstrap(place);
    expect(status).toBe(1);
    expect(stderr).toMatch(/^sandgate: there is no Node package for linux /);
  });

  test('a machine without npm is told so', () => {
    const place = checkout(undefined);
    const { status, stderr } = bootstrap(place, place.bin);
    expect(status).toBe(1);
    expect(stderr).toBe('sandgate: npm is not installed (Debian: apt-get install npm)\n');
  });
});
