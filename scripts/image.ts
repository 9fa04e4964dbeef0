/** `npm run image -- <name> …`: builds images of the repository's recipes into the image store. */
import { join } from 'node:path';
import { runMain, SetupFailure } from './failure.ts';
import { locations } from './locations.ts';
import { recipeNames } from './setup/image.ts';
import { setUpImages } from './setup/setup.ts';
import { terminalProgress } from './setup/step.ts';

await runMain(async () => {
  const places = locations(process.env);
  const names = process.argv.slice(2);
  const known = await recipeNames(join(places.repositoryDir, 'images'));
  const unknown = names.find((name) => !known.includes(name));
  if (names.length === 0 || unknown !== undefined) {
    const wrong = unknown === undefined ? '' : `there is no recipe ${unknown}; `;
    throw new SetupFailure(`${wrong}npm run image -- <name>, one or more of ${known.join(', ')}`);
  }
  console.log('Sandgate: images');
  const images = await setUpImages(names, places, terminalProgress(process.stdout));
  for (const { name, digest } of images) console.log(`  ${name}  ${digest}`);
  console.log('\n  A host that runs already offers them after its next start.');
  return 0;
});
