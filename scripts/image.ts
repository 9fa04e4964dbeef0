/** `npm run image -- <recipe or source> …`: builds recipes of the repository, and imports images, into the image store. */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type ImageSource, parseImageSource } from '../host-agent/images/import/source.ts';
import { ImageRefusal } from '../host-agent/images/refusal.ts';
import { runMain, SetupFailure } from '../host-agent/setup/failure.ts';
import { recipeNames } from '../host-agent/setup/image.ts';
import { setUpImages, setUpImport } from '../host-agent/setup/setup.ts';
import { terminalProgress } from '../host-agent/setup/step.ts';
import { locations } from './locations.ts';

await runMain(async () => {
  const places = locations(process.env);
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { name: { type: 'string' } },
  });
  const known = await recipeNames(join(places.repositoryDir, 'images'));
  // What is no name of a recipe is a source, and says so by its digest.
  const isSource = (name: string): boolean => /[@:/]/.test(name);
  const sources = positionals.filter(isSource).map(sourceOf);
  const names = positionals.filter((name) => !isSource(name));
  const unknown = names.find((name) => !known.includes(name));
  if (positionals.length === 0 || unknown !== undefined) {
    const wrong = unknown === undefined ? '' : `there is no recipe ${unknown}; `;
    throw new SetupFailure(
      `${wrong}npm run image -- <name>, one or more of ${known.join(', ')}, or <source>@sha256:… [--name NAME]`,
    );
  }
  if (values.name !== undefined && positionals.length > 1) throw new SetupFailure('--name is for one source');
  console.log('Sandgate: images');
  const progress = terminalProgress(process.stdout);
  const built = names.length === 0 ? [] : await setUpImages(names, places, progress);
  for (const { name, digest } of built) console.log(`  ${name}  ${digest}`);
  for (const source of sources) {
    const { name, digest, tools } = await setUpImport({ source, name: values.name }, places, progress);
    console.log(`  ${name}  ${digest}\n  tools: ${tools.join(', ')}`);
  }
  console.log('\n  A host that runs already offers them within seconds.');
  return 0;
});

function sourceOf(text: string): ImageSource {
  try {
    return parseImageSource(text);
  } catch (error: unknown) {
    throw error instanceof ImageRefusal ? new SetupFailure(error.message) : error;
  }
}
