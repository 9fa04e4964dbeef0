/** `images`: what sandboxes can be started on. */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type ImageSource, parseImageSource } from '../images/import/source.ts';
import { ImageRefusal } from '../images/refusal.ts';
import { imagesToPrune, removeImage } from '../images/removal.ts';
import { type Image, openImageStore } from '../images/store.ts';
import { askAgent } from '../local-control/client.ts';
import { waitForLock } from '../process/lock-file.ts';
import { recipeNames } from '../setup/image.ts';
import { requireRoot } from '../setup/machine.ts';
import { DEFAULT_IMAGE, setUpImages, setUpImport } from '../setup/setup.ts';
import { terminalProgress } from '../setup/step.ts';
import { CommandFailure, fromFailure, wrongUse } from './failure.ts';
import { type Layout, sourceDir } from './layout.ts';
import type { Subcommand } from './subcommand.ts';

const NAMED_DIGEST = /^(sha256:)?[0-9a-f]{12,64}$/;
const UNUSED_DAYS = 30;

export const images: Subcommand = {
  summary:
    'Lists, builds, imports or removes images; prune removes those that no session started on for 30 days.\n' +
    '      A source is <registry>/<repository>@sha256:…, oci:<folder>@sha256:… or oci-archive:<file>@sha256:….',
  usage:
    'list [--json] | build <recipe>… | import <source> [--name NAME] | remove <digest>… | prune [--unused-days DAYS]',
  options: {
    json: { type: 'boolean' },
    name: { type: 'string' },
    'unused-days': { type: 'string' },
  },
  positionals: [0, 64],
  async run({ layout, positionals: [action = 'list', ...names], flag, text }) {
    switch (action) {
      case 'list':
        return list(layout, flag('json'));
      case 'build':
        return build(layout, names);
      case 'import':
        return importOne(layout, names, text('name'));
      case 'remove':
        return remove(layout, names);
      case 'prune':
        return prune(layout, text('unused-days'));
      default:
        throw wrongUse(`images ${action}: it is list, build, import, remove or prune`);
    }
  },
};

async function list({ imagesDir }: Layout, asJson: boolean): Promise<number> {
  const stored = await openImageStore(imagesDir).list();
  if (asJson) {
    console.log(
      JSON.stringify(
        stored.map(({ name, digest, sizeBytes, createdAt }) => ({ name, digest, sizeBytes, createdAt })),
      ),
    );
    return 0;
  }
  for (const image of stored) console.log(describe(image));
  if (stored.length === 0) console.log('no images');
  return 0;
}

function describe({ name, digest, sizeBytes, createdAt, lastUsedAt }: Image): string {
  const size = `${Math.round(sizeBytes / 1e6)} MB`;
  const used = lastUsedAt === createdAt ? 'never used' : `used ${lastUsedAt.slice(0, 10)}`;
  return `${name.padEnd(12)} ${digest}  ${size.padStart(8)}  ${createdAt.slice(0, 10)}  ${used}`;
}

async function build({ cacheDir }: Layout, names: string[]): Promise<number> {
  requireRoot();
  const repositoryDir = sourceDir();
  const known = await recipeNames(join(repositoryDir, 'images'));
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw wrongUse(`there is no recipe ${unknown}; it is one of ${known.join(', ')}`);
  if (names.length === 0) throw wrongUse(`images build takes one or more of ${known.join(', ')}`);
  const built = await setUpImages(names, { repositoryDir, cacheDir }, terminalProgress(process.stdout));
  for (const { name, digest } of built) console.log(`  ${name}  ${digest}`);
  console.log('  offered within seconds');
  return 0;
}

async function importOne({ cacheDir }: Layout, sources: string[], name: string | undefined): Promise<number> {
  const [text] = sources;
  if (text === undefined || sources.length > 1) throw wrongUse('images import takes one source');
  const source = sourceOf(text);
  requireRoot();
  const places = { repositoryDir: sourceDir(), cacheDir };
  const image = await setUpImport({ source, name }, places, terminalProgress(process.stdout));
  console.log(`  ${image.name}  ${image.digest}`);
  console.log(`  tools: ${image.tools.join(', ')}; offered within seconds`);
  return 0;
}

/** Folders and files are meant from where the command is run. */
function sourceOf(text: string): ImageSource {
  try {
    const source = parseImageSource(text);
    if (source.kind === 'layout') return { ...source, dir: resolve(source.dir) };
    return source.kind === 'archive' ? { ...source, file: resolve(source.file) } : source;
  } catch (error: unknown) {
    throw error instanceof ImageRefusal ? wrongUse(error.message) : error;
  }
}

async function remove(layout: Layout, names: string[]): Promise<number> {
  if (names.length === 0) throw wrongUse('images remove takes one or more digests');
  const stored = await openImageStore(layout.imagesDir).list();
  const inUse = await digestsInUse(layout);
  const chosen = names.map((name) => choose(stored, name));
  const used = chosen.find(({ digest }) => inUse.has(digest));
  if (used !== undefined) throw isUsed(used);
  await withStore(layout, async () => {
    for (const image of chosen) if (!(await removeUnused(layout, image))) throw isUsed(image);
  });
  return 0;
}

function isUsed({ digest }: Image): CommandFailure {
  return new CommandFailure(`${digest} is in use by a sandbox`);
}

/** A digest, or enough of its beginning. A name is not enough: it would mean another image tomorrow. */
function choose(stored: readonly Image[], name: string): Image {
  if (!NAMED_DIGEST.test(name))
    throw wrongUse(`an image is removed by its digest (12 digits or more), not ${name}`);
  const hex = name.replace(/^sha256:/, '');
  const [image, second] = stored.filter(({ digest }) => digest.startsWith(`sha256:${hex}`));
  if (image === undefined) throw new CommandFailure(`there is no image ${name}`);
  if (second !== undefined) throw wrongUse(`${name} is the beginning of more than one digest`);
  return image;
}

async function prune(layout: Layout, days = String(UNUSED_DAYS)): Promise<number> {
  if (!/^\d{1,5}$/.test(days)) throw wrongUse(`--unused-days takes a number of days, not ${days}`);
  const stored = await openImageStore(layout.imagesDir).list();
  const inUse = await digestsInUse(layout);
  const rule = { unusedDays: Number(days), keptNames: [DEFAULT_IMAGE], nowMs: Date.now() };
  const unused = imagesToPrune(stored, rule).filter(({ digest }) => !inUse.has(digest));
  let freedBytes = 0;
  await withStore(layout, async () => {
    for (const image of unused) if (await removeUnused(layout, image)) freedBytes += image.sizeBytes;
  });
  console.log(`${Math.round(freedBytes / 1e6)} MB freed`);
  return 0;
}

/** Set-up, which empties the work folder, waits meanwhile. */
async function withStore({ cacheDir }: Layout, work: () => Promise<void>): Promise<void> {
  if (!existsSync(cacheDir)) return;
  const lock = await waitForLock(join(cacheDir, 'lock'), (pid) =>
    console.log(`waiting for set-up of process ${pid}`),
  );
  try {
    await work();
  } finally {
    lock.release();
  }
}

async function removeUnused(layout: Layout, image: Image): Promise<boolean> {
  const { imagesDir, cacheDir } = layout;
  const places = { imagesDir, workDir: join(cacheDir, 'work') };
  const isRemoved = await removeImage(places, image, async (digest) =>
    (await digestsInUse(layout)).has(digest),
  );
  if (isRemoved) console.log(`removed ${image.name} ${image.digest}`);
  return isRemoved;
}

/** Nothing is in use where no agent runs. */
async function digestsInUse({ hostDir }: Layout): Promise<Set<string>> {
  const asked = await askAgent(hostDir, 'status');
  if (!asked.ok && asked.code !== 'not_found') throw fromFailure(asked);
  const listed = asked.ok ? asked.value.images : [];
  return new Set(listed.flatMap(({ digest, sandboxes }) => (sandboxes > 0 ? [digest] : [])));
}
