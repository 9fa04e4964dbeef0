import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readRecipe, recipeNames } from '../../../host-agent/setup/image.ts';
import { sourceLines } from '../../../host-agent/setup/image-build.ts';
import {
  canonicalJson,
  type ImageRecipe,
  ImageRecipeSchema,
  recipeDigest,
} from '../../../host-agent/setup/image-recipe.ts';

const RECIPES_DIR = join(import.meta.dirname, '../../../images');

const RECIPE: ImageRecipe = {
  format: 1,
  name: 'small',
  suite: 'bookworm',
  pockets: ['bookworm-updates', 'bookworm-security'],
  variant: 'minbase',
  components: ['main'],
  packages: ['python3'],
  remove: ['/usr/share/doc'],
  directories: [{ path: '/workspace', mode: '0755' }],
  links: [],
  files: [],
};

describe('the digest of a recipe', () => {
  test('is sha256 over its canonical JSON', () => {
    expect(recipeDigest(RECIPE)).toBe(
      'sha256:dd9b8d6a5c55382718a38aa81902430c01725f880ea8b655a56e3eb505e89e63',
    );
  });

  test('does not depend on the order of keys', () => {
    const reversed = ImageRecipeSchema.parse(Object.fromEntries(Object.entries(RECIPE).toReversed()));
    expect(recipeDigest(reversed)).toBe(recipeDigest(RECIPE));
  });

  test.each([
    ['a package', { packages: ['python3', 'git'] }],
    ['the order of packages', { packages: ['git', 'python3'] }],
    ['the suite', { suite: 'trixie' }],
    ['a removed folder', { remove: [] }],
    ['the mode of a folder', { directories: [{ path: '/workspace', mode: '0777' }] }],
  ])('changes with %s', (_name, change) => {
    expect(recipeDigest({ ...RECIPE, ...change })).not.toBe(recipeDigest(RECIPE));
  });

  test('canonical JSON sorts keys at every depth and has no white space', () => {
    expect(canonicalJson({ b: [{ d: 1, c: 'ä' }], a: null })).toBe('{"a":null,"b":[{"c":"ä","d":1}]}');
  });
});

describe('what a recipe may say', () => {
  test('the recipes of this repository are some, each named as its file', async () => {
    const names = await recipeNames(RECIPES_DIR);
    expect(names).toEqual(['data', 'full', 'lean', 'node', 'python']);
    const recipes = await Promise.all(names.map((name) => readRecipe(join(RECIPES_DIR, `${name}.json`))));
    expect(recipes.map(({ name }) => name)).toEqual(names);
  });

  test('every image has the folders that a sandbox mounts over, and bash', async () => {
    for (const name of await recipeNames(RECIPES_DIR)) {
      const { directories, packages } = await readRecipe(join(RECIPES_DIR, `${name}.json`));
      const paths = directories.map(({ path }) => path);
      expect(paths).toEqual(
        expect.arrayContaining(['/dev/shm', '/proc', '/run/sandgate', '/sandgate', '/tmp', '/workspace']),
      );
      // Shells and kernels are started by bash.
      expect(packages).toContain('bash');
    }
  });

  test.each([
    ['a path that climbs', { remove: ['/usr/../../etc'] }],
    ['a relative path', { remove: ['usr/share'] }],
    ['the root itself', { remove: ['/'] }],
    ['a package that is an option', { packages: ['--hook'] }],
    ['a package list in one name', { packages: ['git,python3'] }],
    ['a set-id folder', { directories: [{ path: '/workspace', mode: '4755' }] }],
    ['an unknown field', { hooks: ['sh'] }],
    ['another format', { format: 2 }],
  ])('%s is refused', (_name, change) => {
    expect(ImageRecipeSchema.safeParse({ ...RECIPE, ...change }).success).toBe(false);
  });

  test('security updates come from the security archive', () => {
    const archive = {
      mainUri: 'http://mirror.test/debian',
      securityUri: 'http://mirror.test/debian-security',
    };
    expect(sourceLines(RECIPE, archive)).toEqual([
      'deb http://mirror.test/debian bookworm main',
      'deb http://mirror.test/debian bookworm-updates main',
      'deb http://mirror.test/debian-security bookworm-security main',
    ]);
  });
});
