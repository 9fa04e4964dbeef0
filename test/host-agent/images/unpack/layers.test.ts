import { lstatSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ALWAYS_THERE, importLayers, treeOf } from '../../../fixtures/import-layers.ts';
import { paxEntry, type TarEntry, tar, tarEntry } from '../../../fixtures/tar.ts';

const folder = (name: string, mode = 0o755): TarEntry => ({ name, type: '5', mode });
const file = (name: string, content: string): TarEntry => ({ name, content });

async function treeFrom(...layers: TarEntry[][]): Promise<string[]> {
  const { rootfs } = await importLayers({ layers: layers.map((entries) => tar(entries)) });
  return treeOf(rootfs).filter((line) => !ALWAYS_THERE.includes(line));
}

describe('layers over each other', () => {
  test('show the upper file, and what only the lower one has', async () => {
    expect(await treeFrom([file('a', '1'), file('b', '1')], [file('a', '2')])).toEqual(['a: 2', 'b: 1']);
  });

  test('lose what a whiteout names', async () => {
    const lower = [folder('d'), file('d/a', '1'), file('d/b', '1'), folder('e'), file('e/f', '1')];
    expect(await treeFrom(lower, [file('d/.wh.a', ''), file('.wh.e', '')])).toEqual(['d/', 'd/b: 1']);
  });

  test('lose all that an opaque folder had below, wherever in the layer it says so', async () => {
    const lower = [folder('d'), file('d/a', '1'), folder('d/e'), file('d/e/f', '1')];
    const upper = [folder('d'), file('d/new', '2'), file('d/e/g', '2'), file('d/.wh..wh..opq', '')];
    expect(await treeFrom(lower, upper)).toEqual(['d/', 'd/e/', 'd/e/g: 2', 'd/new: 2']);
  });

  test('keep what came with the layer of the whiteout', async () => {
    expect(await treeFrom([file('a', '1')], [file('a', '2'), file('.wh.a', '')])).toEqual(['a: 2']);
  });

  test('do not mind a whiteout of what is not there', async () => {
    expect(await treeFrom([file('a', '1')], [file('x/.wh.y', ''), file('.wh.z', '')])).toEqual(['a: 1']);
  });

  test('put a folder in the place of a file, and a file in the place of a folder', async () => {
    const lower = [file('a', '1'), folder('b'), file('b/c', '1')];
    expect(await treeFrom(lower, [folder('a'), file('a/x', '2'), file('b', '2')])).toEqual([
      'a/',
      'a/x: 2',
      'b: 2',
    ]);
  });

  test('write where a link of a lower layer leads', async () => {
    const lower = [folder('usr'), folder('usr/lib'), { name: 'lib', type: '2', link: 'usr/lib' }];
    expect(await treeFrom(lower, [file('lib/x', '2')])).toContain('usr/lib/x: 2');
  });

  test('share a file that has a second name', async () => {
    const { rootfs } = await importLayers({
      layers: [tar([folder('d'), file('d/a', '1')]), tar([{ name: 'b', type: '1', link: 'd/a' }])],
    });
    expect(lstatSync(join(rootfs, 'b')).ino).toBe(lstatSync(join(rootfs, 'd/a')).ino);
  });

  test('have links to the machine id of the sandbox in place of one of their own, where they have its folder', async () => {
    const etc = [folder('etc'), file('etc/machine-id', 'b08dfa6083e7567a1921a715000001fb')];
    expect(await treeFrom(etc, [folder('var/lib/dbus')])).toEqual([
      'etc/',
      'etc/machine-id -> /run/sandgate/machine_id',
      'var/',
      'var/lib/',
      'var/lib/dbus/',
      'var/lib/dbus/machine-id -> /etc/machine-id',
    ]);
    const linked: TarEntry = { name: 'etc', type: '2', link: 'usr' };
    expect(await treeFrom([folder('usr'), linked])).toEqual(['etc -> usr', 'usr/']);
  });

  test.each(['gzip', 'zstd', 'none'] as const)('may be compressed: %s', async (compression) => {
    const { rootfs } = await importLayers({ layers: [tar([file('a', 'plain')])], compression });
    expect(treeOf(rootfs)).toContain('a: plain');
  });
});

describe('an unpacked entry', () => {
  test('has its mode and time', async () => {
    const { rootfs } = await importLayers({
      layers: [
        tar([
          { ...folder('closed', 0o500), mtime: 1_600_000_000 },
          { name: 'closed/tool', mode: 0o755, content: 'x', mtime: 1_600_000_001 },
        ]),
      ],
    });
    expect(lstatSync(join(rootfs, 'closed'))).toMatchObject({ mode: 0o040500, mtimeMs: 1_600_000_000_000 });
    expect(lstatSync(join(rootfs, 'closed/tool'))).toMatchObject({
      mode: 0o100755,
      mtimeMs: 1_600_000_001_000,
    });
  });

  test('has the long name and the long target of its extended header', async () => {
    const name = `${'long/'.repeat(30)}Főtanúsítvány`;
    const layer = Buffer.concat([
      paxEntry({ path: name, linkpath: 't'.repeat(200), mtime: '1600000000.5' }),
      tarEntry({ name: 'short', type: '2', link: 'short' }),
      tarEntry({ name: '././@LongLink', type: 'L', content: `${'g'.repeat(120)}\0` }),
      tarEntry({ name: 'g', content: 'gnu' }),
      Buffer.alloc(1024),
    ]);
    const { rootfs } = await importLayers({ layers: [layer] });
    expect(treeOf(rootfs)).toEqual(
      expect.arrayContaining([`${name} -> ${'t'.repeat(200)}`, `${'g'.repeat(120)}: gnu`]),
    );
  });

  test('has bytes over many blocks', async () => {
    const content = 'line of text\n'.repeat(50_000);
    const { rootfs } = await importLayers({ layers: [tar([file('a', content), file('b', 'after')])] });
    expect(treeOf(rootfs)).toEqual(expect.arrayContaining([`a: ${content}`, 'b: after']));
  });
});
