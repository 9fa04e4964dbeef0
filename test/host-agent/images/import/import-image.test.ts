import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { importImage } from '../../../../host-agent/images/import/import-image.ts';
import { parseImageSource } from '../../../../host-agent/images/import/source.ts';
import { openImageStore } from '../../../../host-agent/images/store.ts';
import { run } from '../../../../host-agent/process/run-command.ts';
import { ARCHITECTURE, addBlob, addIndex, blobPath, writeLayout } from '../../../fixtures/image-layout.ts';
import { importLayers, TEST_LIMITS, temporaryCache } from '../../../fixtures/import-layers.ts';
import { tar } from '../../../fixtures/tar.ts';

const LAYER = tar([{ name: 'file', content: 'content' }]);
const FOREIGN = 'application/vnd.docker.image.rootfs.foreign.diff.tar.gzip';

async function importFrom(cacheDir: string, source: string, name = 'tested') {
  return importImage(
    {
      source: parseImageSource(source),
      name,
      reservedNames: ['python'],
      cacheDir,
      architecture: ARCHITECTURE,
      limits: TEST_LIMITS,
    },
    () => undefined,
  );
}

function layoutIn(cacheDir: string): { layout: string; digest: string; source: string } {
  const layout = join(cacheDir, 'layout');
  const digest = writeLayout(layout, { layers: [LAYER] });
  return { layout, digest, source: `oci:${layout}@${digest}` };
}

function stays(cacheDir: string): string[] {
  const images = join(cacheDir, 'images');
  const work = join(cacheDir, 'work');
  return [images, work].flatMap((dir) => (existsSync(dir) ? readdirSync(dir) : []));
}

/** The largest blob of the layout that is no manifest: its layer. */
function layerOf(layout: string, digest: string): string {
  const manifest: { layers: { digest: string }[] } = JSON.parse(
    readFileSync(blobPath(layout, digest), 'utf8'),
  );
  return blobPath(layout, manifest.layers[0]?.digest ?? '');
}

describe('an imported image', () => {
  test('is in the store under its digest, with what it says of itself', async () => {
    const cacheDir = temporaryCache();
    const bash = { name: 'bin/bash', mode: 0o755, content: 'x' };
    const python = { name: 'opt/python3', mode: 0o755, content: 'x' };
    const link = { name: 'usr/local/bin/python3', type: '2', link: '../../../../opt/python3' };
    const node = { name: 'usr/bin/node', type: '2', link: '/nowhere' };
    const { image } = await importLayers(
      {
        layers: [tar([bash, python, link, node])],
        environment: ['PATH=/usr/local/bin:/usr/bin:/bin', 'HOME=/root', 'LANG=C', '=', 'not a variable'],
      },
      { cacheDir },
    );
    expect(image.tools).toEqual(['file', 'shell', 'python']);
    expect(await openImageStore(join(cacheDir, 'images')).list()).toMatchObject([
      {
        name: 'tested',
        digest: image.digest,
        sizeBytes: 2,
        environment: { PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C' },
      },
    ]);
    expect(readdirSync(join(cacheDir, 'work'))).toEqual([]);
  });

  test('is the build for this machine, where the digest is that of an index', async () => {
    const cacheDir = temporaryCache();
    const { layout, digest } = layoutIn(cacheDir);
    const { length: size } = readFileSync(blobPath(layout, digest));
    const index = addIndex(layout, [
      { digest: `sha256:${'0'.repeat(64)}`, size: 1, platform: { os: 'unknown', architecture: 'unknown' } },
      { digest, size, platform: { os: 'linux', architecture: ARCHITECTURE } },
    ]);
    expect(await importFrom(cacheDir, `oci:${layout}@${index}`)).toMatchObject({ digest: index });
  });

  test('comes out of an archive too', async () => {
    const cacheDir = temporaryCache();
    const { layout, digest } = layoutIn(cacheDir);
    const archive = join(cacheDir, 'image.tar');
    await run('tar', ['--create', `--file=${archive}`, `--directory=${layout}`, '.']);
    expect(await importFrom(cacheDir, `oci-archive:${archive}@${digest}`)).toMatchObject({ digest });
  });
});

describe('an image is refused, and nothing of it stays, when', () => {
  test.each<[string, (cacheDir: string) => string, RegExp]>([
    [
      'its manifest has another digest',
      (cacheDir) => {
        const { layout, digest, source } = layoutIn(cacheDir);
        const path = blobPath(layout, digest);
        writeFileSync(path, `${readFileSync(path, 'utf8')} `);
        return source;
      },
      /the manifest that came is not the one/,
    ],
    [
      'a layer has other bytes',
      (cacheDir) => {
        const { layout, digest, source } = layoutIn(cacheDir);
        const path = layerOf(layout, digest);
        const bytes = readFileSync(path);
        bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
        writeFileSync(path, bytes);
        return source;
      },
      /has another digest/,
    ],
    [
      'a layer is not there',
      (cacheDir) => {
        const { layout, digest, source } = layoutIn(cacheDir);
        rmSync(layerOf(layout, digest));
        return source;
      },
      /there is no sha256:/,
    ],
    [
      'a folder lies in the place of a layer',
      (cacheDir) => {
        const { layout, digest, source } = layoutIn(cacheDir);
        rmSync(layerOf(layout, digest));
        mkdirSync(layerOf(layout, digest));
        return source;
      },
      /is not what its name says/,
    ],
    [
      'the digest is not in the folder',
      (cacheDir) => `oci:${layoutIn(cacheDir).layout}@sha256:${'0'.repeat(64)}`,
      /there is no sha256:/,
    ],
    [
      'the digest is that of something else',
      (cacheDir) => {
        const layout = join(cacheDir, 'layout');
        return `oci:${layout}@${addBlob(layout, '', Buffer.from('{"schemaVersion":2}')).digest}`;
      },
      /not that of an image/,
    ],
    [
      'an index has no build for this machine',
      (cacheDir) => {
        const { layout, digest } = layoutIn(cacheDir);
        const manifests = [{ digest, size: 1, platform: { os: 'linux', architecture: 's390x' } }];
        return `oci:${layout}@${addIndex(layout, manifests)}`;
      },
      /no build for linux/,
    ],
    [
      'an index names an index',
      (cacheDir) => {
        const { layout, digest } = layoutIn(cacheDir);
        const platform = { os: 'linux', architecture: ARCHITECTURE };
        const inner = addIndex(layout, [{ digest, size: 1, platform }]);
        return `oci:${layout}@${addIndex(layout, [{ digest: inner, size: 1, platform }])}`;
      },
      /list of lists/,
    ],
    ['its name is that of a recipe', (cacheDir) => `${layoutIn(cacheDir).source}#python`, /built here/],
  ])('%s', async (_title, prepare, message) => {
    const cacheDir = temporaryCache();
    const [source = '', name] = prepare(cacheDir).split('#');
    await expect(importFrom(cacheDir, source, name)).rejects.toThrow(message);
    expect(stays(cacheDir)).toEqual([]);
  });

  test.each([
    ['it is for another machine', { architecture: 's390x' }, /this machine is linux on/],
    [
      'it is no image but an artifact',
      { configType: 'application/vnd.cncf.helm.config.v1+json' },
      /not of an image/,
    ],
    ['a layer lies elsewhere', { layerType: FOREIGN }, /a layer of application/],
    [
      'a layer unpacks to another archive',
      { diffIds: [`sha256:${'0'.repeat(64)}`] },
      /not the one that the image/,
    ],
    ['it names more archives than layers', { diffIds: [] }, /other layers/],
  ])('%s', async (_title, wrong, message) => {
    const cacheDir = temporaryCache();
    await expect(importLayers({ layers: [LAYER], ...wrong }, { cacheDir })).rejects.toThrow(message);
    expect(stays(cacheDir)).toEqual([]);
  });
});
