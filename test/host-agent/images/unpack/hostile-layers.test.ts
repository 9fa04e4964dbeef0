import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { importLayers, temporaryCache, treeOf } from '../../../fixtures/import-layers.ts';
import { paxEntry, type TarEntry, tar, tarEntry } from '../../../fixtures/tar.ts';

const END = Buffer.alloc(1024);

/** A folder beside the image that a way out would reach, and what is in it. */
function cacheWithVictim(): { cacheDir: string; victim: string } {
  const cacheDir = temporaryCache();
  const victim = join(cacheDir, 'victim');
  mkdirSync(victim, { mode: 0o777 });
  writeFileSync(join(victim, 'kept'), 'kept', { mode: 0o666 });
  return { cacheDir, victim };
}

function folder(name: string): TarEntry {
  return { name, type: '5', mode: 0o755 };
}

function link(name: string, to: string): TarEntry {
  return { name, type: '2', link: to };
}

describe('a layer that is refused', () => {
  test.each<[string, TarEntry[], RegExp]>([
    ['names a path that goes up', [{ name: '../../victim/new', content: 'x' }], /goes up/],
    ['goes up in the middle', [{ name: 'a/../../victim/new', content: 'x' }], /goes up/],
    ['links to a file of the machine', [{ name: 'shadow', type: '1', link: '/etc/shadow' }], /hard link/],
    ['links up to a file of the machine', [{ name: 's', type: '1', link: '../../etc/shadow' }], /goes up/],
    [
      'links through a link to a file of the machine',
      [link('out', '/etc'), { name: 'shadow', type: '1', link: 'out/shadow' }],
      /hard link to what is no file/,
    ],
    ['links to a folder', [folder('d'), { name: 'l', type: '1', link: 'd' }], /hard link/],
    [
      'writes through a file',
      [
        { name: 'f', content: 'x' },
        { name: 'f/g', content: 'x' },
      ],
      /through a file/,
    ],
    ['writes through a circle of links', [link('a', 'b'), link('b', 'a'), { name: 'a/f' }], /too many links/],
    ['has a whiteout of the folder above', [{ name: '.wh..' }], /whiteout of nothing/],
    ['has a whiteout of two folders above', [{ name: 'a/.wh...' }], /whiteout of nothing/],
    ['has a whiteout without a name', [{ name: 'a/.wh.' }], /whiteout of nothing/],
    ['has something below a whiteout', [{ name: '.wh.a/b', content: 'x' }], /below a whiteout/],
    ['has a sparse file', [{ name: 'sparse', type: 'S', content: 'x' }], /unknown type/],
    ['has an unknown type', [{ name: 'strange', type: 'Z' }], /unknown type/],
    ['has a name that is not UTF-8', [{ name: Buffer.from([0x61, 0xff]), content: 'x' }], /not UTF-8/],
    ['has a link to nothing', [link('empty', '')], /link to nothing/],
    [
      'has a name over 255 bytes',
      [{ name: `${'n'.repeat(100)}`, type: 'L', content: 'n'.repeat(300) }, { name: 'x' }],
      /too long/,
    ],
  ])('%s', async (_title, entries, message) => {
    const { cacheDir, victim } = cacheWithVictim();
    const below = tar([folder('etc'), folder('a'), { name: 'a/lower', content: 'x' }]);
    await expect(importLayers({ layers: [below, tar(entries)] }, { cacheDir })).rejects.toThrow(message);
    expect(readdirSync(victim)).toEqual(['kept']);
    // Nothing of it stays.
    expect(existsSync(join(cacheDir, 'images/tested'))).toBe(false);
    expect(readdirSync(join(cacheDir, 'work'))).toEqual([]);
  });

  test('is sparse by its extended header', async () => {
    const layer = Buffer.concat([
      paxEntry({ 'GNU.sparse.major': '1', 'GNU.sparse.realsize': '1099511627776' }),
      tarEntry({ name: 'sparse', content: 'x' }),
      END,
    ]);
    await expect(importLayers({ layers: [layer] })).rejects.toThrow(/sparse/);
  });

  test('says that it holds more than it does', async () => {
    const layer = Buffer.concat([tarEntry({ name: 'big', size: 8_000_000_000 }), END]);
    await expect(importLayers({ layers: [layer] })).rejects.toThrow(/in the middle of an entry/);
  });

  test('unpacks to more bytes than an image may have', async () => {
    const layer = tar([{ name: 'zeros', content: Buffer.alloc(3 * 1024 ** 2) }]);
    const limits = { maxBytes: 2 * 1024 ** 2, maxEntries: 100, reservedBytes: 0 };
    await expect(importLayers({ layers: [layer] }, { limits })).rejects.toThrow(
      /larger than 2,097,152 bytes/,
    );
  });

  test('has more entries than an image may have', async () => {
    const layer = tar(Array.from({ length: 101 }, (_, at) => ({ name: `f${at}` })));
    const limits = { maxBytes: 2 * 1024 ** 2, maxEntries: 100, reservedBytes: 0 };
    await expect(importLayers({ layers: [layer] }, { limits })).rejects.toThrow(/more than 100 entries/);
  });

  test('needs more folders than an image may have entries', async () => {
    const layer = tar(Array.from({ length: 4 }, (_, at) => ({ name: `${at}${'/d'.repeat(40)}` })));
    const limits = { maxBytes: 2 * 1024 ** 2, maxEntries: 100, reservedBytes: 0 };
    await expect(importLayers({ layers: [layer] }, { limits })).rejects.toThrow(/more than 100 entries/);
  });

  test('would leave too little on the disk', async () => {
    const layer = tar([{ name: 'f', content: 'x' }]);
    const limits = { maxBytes: 2 * 1024 ** 2, maxEntries: 100, reservedBytes: 2 ** 52 };
    await expect(importLayers({ layers: [layer] }, { limits })).rejects.toThrow(/not enough space/);
  });

  test('is damaged', async () => {
    const layer = tar([{ name: 'f', content: 'x' }]);
    layer[0] = 0x67;
    await expect(importLayers({ layers: [layer] })).rejects.toThrow(/not a tar archive/);
  });
});

describe('a layer that is kept inside', () => {
  test('writes at an absolute path of the image', async () => {
    const { rootfs } = await importLayers({ layers: [tar([{ name: '/etc/motd', content: 'image' }])] });
    expect(readFileSync(join(rootfs, 'etc/motd'), 'utf8')).toBe('image');
  });

  test.each([
    ['absolute', '/out'],
    ['leading up and out', '../../../../../../out'],
  ])('writes through a link that is %s', async (_title, target) => {
    const { rootfs } = await importLayers({
      layers: [tar([link('in', target)]), tar([{ name: 'in/file', content: 'image' }])],
    });
    expect(treeOf(rootfs)).toEqual(expect.arrayContaining([`in -> ${target}`, 'out/', 'out/file: image']));
    expect(existsSync('/out')).toBe(false);
  });

  test('puts a file in the place of a link and leaves what that led to', async () => {
    const { cacheDir, victim } = cacheWithVictim();
    const { rootfs } = await importLayers(
      { layers: [tar([link('x', join(victim, 'kept'))]), tar([{ name: 'x', content: 'image' }])] },
      { cacheDir },
    );
    expect(readFileSync(join(victim, 'kept'), 'utf8')).toBe('kept');
    expect(lstatSync(join(rootfs, 'x')).isFile()).toBe(true);
  });

  test.each(['.wh.out', 'out/.wh..wh..opq', 'out/.wh.kept'])(
    'takes away with %s nothing outside',
    async (name) => {
      const { cacheDir, victim } = cacheWithVictim();
      await importLayers({ layers: [tar([link('out', victim)]), tar([{ name }])] }, { cacheDir });
      expect(readdirSync(victim)).toEqual(['kept']);
    },
  );

  test('has a later entry of the same name in the place of an earlier one', async () => {
    const { rootfs } = await importLayers({
      layers: [
        tar([
          { name: 'a', content: '1' },
          folder('a'),
          { name: 'a/b', content: '2' },
          { name: 'a', content: '3' },
        ]),
      ],
    });
    expect(treeOf(rootfs)).toContain('a: 3');
  });

  test('has a link in the place of a folder that a sandbox needs', async () => {
    const { rootfs } = await importLayers({
      layers: [tar([link('workspace', '/etc'), link('tmp', '/'), { name: 'proc', content: 'x' }])],
    });
    for (const name of ['workspace', 'tmp', 'proc'])
      expect(lstatSync(join(rootfs, name)).isDirectory()).toBe(true);
  });
});

describe('what an image does not keep', () => {
  test('are set-id bits, devices, pipes, extended attributes and owners', async () => {
    const layer = Buffer.concat([
      tarEntry({ name: 'su', mode: 0o6755, content: 'x' }),
      tarEntry({ name: 'folder', type: '5', mode: 0o2775 }),
      tarEntry({ name: 'disk', type: '4' }),
      tarEntry({ name: 'null', type: '3' }),
      tarEntry({ name: 'pipe', type: '6' }),
      paxEntry({ 'SCHILY.xattr.security.capability': Buffer.from([1, 0, 0, 2]), uid: '1000' }),
      tarEntry({ name: 'ping', mode: 0o755, content: 'x' }),
      tarEntry({ name: 'dev/console', type: '3' }),
      tarEntry({ name: 'dev/file', content: 'x' }),
      END,
    ]);
    const { rootfs, image } = await importLayers({ layers: [layer] });
    expect(image.unpacked).toMatchObject({ left_out: 5, set_id_removed: 1 });
    expect(readdirSync(rootfs).toSorted()).toEqual([
      'dev',
      'folder',
      'ping',
      'proc',
      'run',
      'sandgate',
      'su',
      'sys',
      'tmp',
      'workspace',
    ]);
    expect(readdirSync(join(rootfs, 'dev'))).toEqual(['shm']);
    for (const name of ['su', 'ping', 'folder']) {
      const { mode, uid, gid } = lstatSync(join(rootfs, name));
      expect({ name, setId: mode & 0o6000, uid, gid }).toEqual({ name, setId: 0, uid: 0, gid: 0 });
    }
  });
});
