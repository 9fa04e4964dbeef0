/** Copies the agent to where it is installed: its sources, the packages they import, and the Node that runs them. */
import { constants } from 'node:fs';
import { chmod, copyFile, cp, mkdir, readFile, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import * as z from 'zod';
import { CommandFailure } from './failure.ts';

const SOURCES = ['host-agent', 'shared', 'images', 'package.json', 'LICENSE'];
/** What host-agent/ and shared/ import; a test holds this list to the imports. */
export const HOST_PACKAGES: readonly string[] = ['jose', 'pino', 'prom-client', 'undici', 'zod'];

const PackageSchema = z.object({ dependencies: z.record(z.string(), z.string()).default({}) });

/** The former program stays whole until the new one is: an install that fails half-way changes nothing. */
export async function copyProgram(fromDir: string, toDir: string): Promise<void> {
  const newDir = `${toDir}.new`;
  await rm(newDir, { recursive: true, force: true });
  await mkdir(newDir, { recursive: true, mode: 0o755 });
  for (const source of SOURCES) await cp(join(fromDir, source), join(newDir, source), { recursive: true });
  for (const path of await packagePaths(fromDir)) {
    await mkdir(dirname(join(newDir, path)), { recursive: true });
    await cp(join(fromDir, path), join(newDir, path), { recursive: true });
  }
  await copyFile(process.execPath, join(newDir, 'node'), constants.COPYFILE_FICLONE);
  await chmod(join(newDir, 'node'), 0o755);
  const formerDir = `${toDir}.former`;
  await rm(formerDir, { recursive: true, force: true });
  await rename(toDir, formerDir).catch(() => undefined);
  await rename(newDir, toDir);
  await rm(formerDir, { recursive: true, force: true });
}

/** Folders below `node_modules` with all that the agent's packages need, and what those need. */
async function packagePaths(dir: string): Promise<string[]> {
  const found = new Set<string>();
  const visit = async (name: string, from: string): Promise<void> => {
    const path = await resolvePackage(dir, name, from);
    if (found.has(path)) return;
    found.add(path);
    const text = await readFile(join(dir, path, 'package.json'), 'utf8');
    const { dependencies } = PackageSchema.parse(JSON.parse(text));
    for (const dependency of Object.keys(dependencies)) await visit(dependency, path);
  };
  for (const name of HOST_PACKAGES) await visit(name, '');
  return [...found];
}

/** As Node does: in the nearest `node_modules` from the importing package upwards. */
async function resolvePackage(dir: string, name: string, from: string): Promise<string> {
  for (let at = from; ; at = dirname(at) === '.' ? '' : dirname(at)) {
    const path = join(at, 'node_modules', name);
    if (basename(at) === 'node_modules') continue;
    const isThere = await readFile(join(dir, path, 'package.json')).then(
      () => true,
      () => false,
    );
    if (isThere) return path;
    if (at === '') throw new CommandFailure(`the package ${name} is missing in ${dir}: run npm ci there`);
  }
}
