import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { RootFiles } from '../../../../host-agent/images/root/root-files.ts';

const SHIPPED_S = 1_700_000_000;
const BUILT_AT = '2026-02-01T00:00:00.000Z';
const BUILT_S = Date.parse(BUILT_AT) / 1000;
const ODD_NAME = 'ö\n "\\';

let dir: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'sandgate-root-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  const guest = join(dir, 'guest');
  mkdirSync(join(guest, 'kernels'), { recursive: true });
  writeFileSync(join(guest, 'supervisor'), 'supervise', { mode: 0o755 });
  writeFileSync(join(guest, 'kernels', 'python.py'), 'print()');
});

/** The tree of an image, and where the store has it. */
function makeTree(name = 'image'): string {
  const rootfs = join(dir, name, 'rootfs');
  for (const path of ['usr/bin', 'sandgate', 'secret']) mkdirSync(join(rootfs, path), { recursive: true });
  writeFileSync(join(rootfs, 'usr/bin/tool'), 'tool', { mode: 0o751 });
  linkSync(join(rootfs, 'usr/bin/tool'), join(rootfs, 'usr/bin/same-tool'));
  symlinkSync('/nowhere/at/all', join(rootfs, 'usr/link'));
  writeFileSync(join(rootfs, 'usr/large'), Buffer.alloc(9 * 1024 * 1024 + 5, 7));
  writeFileSync(join(rootfs, 'usr', ODD_NAME), 'odd');
  writeFileSync(join(rootfs, 'sandgate/former'), 'not of the programs');
  writeFileSync(join(rootfs, 'secret/key'), 'key');
  chmodSync(join(rootfs, 'secret/key'), 0o000);
  chmodSync(join(rootfs, 'secret'), 0o700);
  for (const path of ['usr/bin/tool', 'usr/large', 'sandgate/former', 'secret/key'])
    utimesSync(join(rootfs, path), SHIPPED_S, SHIPPED_S);
  return rootfs;
}

const files = (guest = 'a'.repeat(64)) => new RootFiles({ guestDir: join(dir, 'guest'), guest });

async function make(rootfsPath: string, builtAt: string | undefined = BUILT_AT, roots = files()) {
  const made = await roots.of({ rootfsPath, builtAt });
  if (!made.ok) throw new Error(made.detail);
  return made.value;
}

function unpack(path: string): string {
  const target = join(dir, `unpacked-${readdirSync(dir).length}`);
  execFileSync('fsck.erofs', [`--extract=${target}`, path], { stdio: 'ignore' });
  return target;
}

describe('the root file of an image', () => {
  test('holds the tree as it is: names, contents, links, modes', async () => {
    const { path } = await make(makeTree());
    const root = unpack(path);
    expect(readFileSync(join(root, 'usr/bin/tool'), 'utf8')).toBe('tool');
    expect(lstatSync(join(root, 'usr/bin/tool')).mode & 0o7777).toBe(0o751);
    expect(readFileSync(join(root, 'usr/bin/same-tool'), 'utf8')).toBe('tool');
    expect(readlinkSync(join(root, 'usr/link'))).toBe('/nowhere/at/all');
    expect(readFileSync(join(root, 'usr/large')).equals(Buffer.alloc(9 * 1024 * 1024 + 5, 7))).toBe(true);
    expect(readFileSync(join(root, 'usr', ODD_NAME), 'utf8')).toBe('odd');
    expect(lstatSync(join(root, 'secret')).mode & 0o7777).toBe(0o700);
    expect(lstatSync(join(root, 'secret/key'))).toMatchObject({ size: 3 });
    expect(lstatSync(join(root, 'secret/key')).mode & 0o7777).toBe(0);
    expect(lstatSync(join(root, 'usr/large')).mtimeMs).toBe(SHIPPED_S * 1000);
  });

  test('has the guest programs in the place of whatever the tree has there, and leaves the tree alone', async () => {
    const tree = makeTree();
    const root = unpack((await make(tree)).path);
    expect(readdirSync(join(root, 'sandgate'), { recursive: true, encoding: 'utf8' }).toSorted()).toEqual([
      'kernels',
      'kernels/python.py',
      'supervisor',
    ]);
    expect(lstatSync(join(root, 'sandgate/supervisor')).mode & 0o7777).toBe(0o755);
    expect(readFileSync(join(tree, 'sandgate/former'), 'utf8')).toBe('not of the programs');
    expect(lstatSync(join(tree, 'usr/bin/tool')).nlink).toBe(2);
  });

  test('is the same on a host that built the same tree later, byte for byte', async () => {
    const [early, late] = [makeTree('early'), makeTree('late')];
    const generated = 'usr/generated';
    for (const [tree, at] of [
      [early, BUILT_S - 5],
      [late, BUILT_S + 86_400],
    ] as const) {
      writeFileSync(join(tree, generated), 'of the build');
      for (const path of [generated, 'usr/bin', 'usr', '.']) utimesSync(join(tree, path), at, at);
    }
    const [one, other] = [
      await make(early),
      await make(late, new Date((BUILT_S + 86_405) * 1000).toISOString()),
    ];
    expect(one.id).toBe(other.id);
    expect(readFileSync(one.path).equals(readFileSync(other.path))).toBe(true);
    expect(lstatSync(join(unpack(one.path), generated)).mtimeMs).toBe(SHIPPED_S * 1000);
  });

  test('has another id where a file differs in size, or a program does', async () => {
    const { id } = await make(makeTree('one'));
    const tree = makeTree('two');
    writeFileSync(join(tree, 'usr/bin/tool'), 'tool of another version');
    expect((await make(tree)).id).not.toBe(id);
    writeFileSync(join(dir, 'guest/supervisor'), 'supervise better');
    expect((await make(makeTree('three'))).id).not.toBe(id);
  });

  test('is made once for all who ask at once, and found by those who ask later', async () => {
    const tree = makeTree();
    const roots = files();
    const made = await Promise.all([make(tree, BUILT_AT, roots), make(tree, BUILT_AT, roots)]);
    const { ino } = lstatSync(made[0].path);
    expect(made[1]).toEqual(made[0]);
    expect(await make(tree)).toEqual(made[0]);
    expect(lstatSync(made[0].path).ino).toBe(ino);
  });

  test('is made anew where it is torn, and stays beside those of other programs', async () => {
    const tree = makeTree();
    const { path, id } = await make(tree);
    const other = await make(tree, BUILT_AT, files('b'.repeat(64)));
    truncateSync(path, 8192);
    expect((await make(tree)).id).toBe(id);
    expect(lstatSync(path).size).toBeGreaterThan(9 * 1024 * 1024);
    expect(existsSync(other.path)).toBe(true);
    expect(readdirSync(join(dir, 'image/roots')).toSorted()).toEqual(
      ['a', 'b'].map((letter) => `${letter.repeat(64)}.erofs`),
    );
  });

  test('goes when no agent has used it for a week', async () => {
    const tree = makeTree();
    const old = await make(tree, BUILT_AT, files('b'.repeat(64)));
    const eightDaysAgoS = Date.now() / 1000 - 8 * 86_400;
    utimesSync(old.path, eightDaysAgoS, eightDaysAgoS);
    await make(tree);
    expect(existsSync(old.path)).toBe(false);
  });

  test('is a failure that says why where there is no tree', async () => {
    expect(await files().of({ rootfsPath: join(dir, 'absent/rootfs'), builtAt: undefined })).toMatchObject({
      ok: false,
      code: 'sandbox_failed',
      detail: expect.stringMatching(/^cp failed: .*No such file or directory/),
    });
    expect(readdirSync(join(dir, 'absent/roots'))).toEqual([]);
  });
});
