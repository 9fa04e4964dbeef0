/** Workers as workerd loads them: each entry and all that it imports as one module. */
import { build, stop } from 'esbuild';

/** The text of each bundle, in the order of the entries. */
export async function bundleWorkers<const Entries extends readonly string[]>(
  entries: Entries,
): Promise<{ [Index in keyof Entries]: string }>;
export async function bundleWorkers(entries: readonly string[]): Promise<string[]> {
  const bundled = await Promise.all(entries.map(bundle));
  // esbuild keeps a process for further builds; there are none.
  await stop();
  return bundled;
}

async function bundle(entry: string): Promise<string> {
  const bundled = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'neutral',
    conditions: ['workerd', 'worker', 'browser'],
    mainFields: ['browser', 'module', 'main'],
    external: ['cloudflare:*', 'node:*'],
    target: 'es2024',
    logLevel: 'silent',
  });
  const [output] = bundled.outputFiles;
  if (output === undefined) throw new Error(`esbuild gave no output for ${entry}`);
  return output.text;
}
