import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { expect, test } from 'vitest';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
/** Far below what a Worker may have: the bound is there to notice a library that comes in by accident. */
const MAX_GZIP_BYTES = 400_000;

test('the Worker bundles without anything of Node, and stays small', async () => {
  const built = await build({
    entryPoints: [join(root, 'worker/index.ts')],
    bundle: true,
    write: false,
    minify: true,
    metafile: true,
    format: 'esm',
    platform: 'neutral',
    target: 'es2024',
    conditions: ['workerd', 'worker', 'browser'],
    mainFields: ['browser', 'module', 'main'],
    external: ['cloudflare:*', 'node:*'],
    logLevel: 'silent',
  });
  const [output] = Object.values(built.metafile.outputs);
  const externals = output?.imports.filter((entry) => entry.external).map((entry) => entry.path);
  expect([...new Set(externals)]).toEqual(['cloudflare:workers', 'cloudflare:workflows']);
  const [file] = built.outputFiles;
  expect(file?.contents.length).toBeGreaterThan(10_000);
  expect(gzipSync(file?.contents ?? '').length).toBeLessThan(MAX_GZIP_BYTES);
});
