import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { expect, test } from 'vitest';

const LIBRARY = /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//;
const root = join(dirname(fileURLToPath(import.meta.url)), '..');
/** Direct ones, whose reasons are in docs/architecture.md, and theirs: one that comes in by accident shows here. */
const LIBRARIES = [
  '@modelcontextprotocol/client',
  '@modelcontextprotocol/core',
  '@modelcontextprotocol/server',
  'diff',
  'eventsource-parser',
  'hono',
  'jose',
  'pkce-challenge',
  'zod',
];
/** What these and our own code may come to: far below what a Worker may have. */
const MAX_GZIP_BYTES = 500_000;

test('the Worker bundles the libraries that it is to have and nothing of Node, and stays small', async () => {
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
  const libraries = Object.keys(output?.inputs ?? {}).flatMap((path) => LIBRARY.exec(path)?.slice(1) ?? []);
  expect([...new Set(libraries)].sort()).toEqual(LIBRARIES);
  const [file] = built.outputFiles;
  expect(file?.contents.length).toBeGreaterThan(10_000);
  expect(gzipSync(file?.contents ?? '').length).toBeLessThan(MAX_GZIP_BYTES);
});
