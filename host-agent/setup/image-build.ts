/** Builds one image from its recipe into an empty folder. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from '../process/run-command.ts';
import type { DebianArchive } from './debian-archive.ts';
import { SetupFailure } from './failure.ts';
import { failureReason } from './failure-reason.ts';
import type { ImageRecipe } from './image-recipe.ts';
import { finishRootfs } from './image-rootfs.ts';

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';

export type ImageBuild = {
  recipe: ImageRecipe;
  archive: DebianArchive;
  rootfs: string;
  signal?: AbortSignal;
};

/** Returns the packages in the image as `name version`. */
export async function buildImage(build: ImageBuild, detail: (text: string) => void): Promise<string[]> {
  const { recipe, rootfs } = build;
  const aptOptions = await proxyOptions();
  const args = [
    '--mode=root',
    `--variant=${recipe.variant}`,
    `--include=${recipe.packages.join(',')}`,
    `--components=${recipe.components.join(',')}`,
    `--keyring=${KEYRING}`,
    ...aptOptions.map((option) => `--aptopt=${option}`),
    recipe.suite,
    rootfs,
    ...sourceLines(recipe, build.archive),
  ];
  const built = await run('mmdebstrap', args, {
    onLine: (line) => {
      if (line.startsWith('I: ')) detail(line.slice('I: '.length).replace(/\.*$/, ''));
    },
    ...(build.signal === undefined ? {} : { signal: build.signal }),
  });
  if (built.exitCode !== 0) {
    throw new SetupFailure(`mmdebstrap could not build image ${recipe.name}: ${failureReason(built.tail)}`);
  }
  const packages = installedPackages(await readFile(join(rootfs, 'var/lib/dpkg/status'), 'utf8'));
  detail('removing what an image does not need');
  await finishRootfs(rootfs, recipe);
  return packages;
}

export function sourceLines(recipe: ImageRecipe, archive: DebianArchive): string[] {
  return [recipe.suite, ...recipe.pockets].map((suite) => {
    const uri = suite.endsWith('-security') ? archive.securityUri : archive.mainUri;
    return `deb ${uri} ${suite} ${recipe.components.join(' ')}`;
  });
}

/** Reads dpkg's status database. */
export function installedPackages(status: string): string[] {
  const packages: string[] = [];
  for (const paragraph of status.split('\n\n')) {
    const name = /^Package: (.+)$/m.exec(paragraph)?.[1];
    const version = /^Version: (.+)$/m.exec(paragraph)?.[1];
    const installed = /^Status: install ok installed$/m.test(paragraph);
    if (installed && name !== undefined && version !== undefined) packages.push(`${name} ${version}`);
  }
  return packages.sort();
}

/** mmdebstrap starts from an apt configuration of its own, so the machine's proxy has to be handed on. */
async function proxyOptions(): Promise<string[]> {
  const dump = await run('apt-config', ['dump', '--format', '%f "%v"%n']);
  return dump.stdout.split('\n').filter((line) => /^Acquire::https?::Proxy(::\S+)? "[^"]+"$/i.test(line));
}
