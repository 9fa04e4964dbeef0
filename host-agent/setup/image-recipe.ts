/**
 * What an image is made of, as data. The digest that names an image everywhere is `sha256:` and the SHA-256 of the
 * recipe in canonical form: JSON with the keys of every object in code-point order and no white space, in UTF-8.
 */
import { createHash } from 'node:crypto';
import * as z from 'zod';

const NameSchema = z.string().regex(/^[a-z][a-z0-9-]{0,62}$/);
const PackageSchema = z.string().regex(/^[a-z0-9][a-z0-9+.-]{1,127}$/);
const SuiteSchema = z.string().regex(/^[a-z][a-z-]{1,62}$/);
/** Absolute, and without a component that could lead out of the root file system. */
const PathSchema = z.string().regex(/^(\/(?!\.{1,2}(\/|$))[A-Za-z0-9._-]+)+$/);
export const ImageRecipeSchema = z.strictObject({
  /** Raised when the builder does something else with the same recipe, so that its digest changes too. */
  format: z.literal(1),
  name: NameSchema,
  suite: SuiteSchema,
  pockets: z.array(SuiteSchema).max(8),
  variant: z.enum(['minbase', 'apt', 'essential']),
  components: z.array(z.enum(['main', 'contrib', 'non-free'])).min(1),
  packages: z.array(PackageSchema).max(500),
  remove: z.array(PathSchema),
  directories: z.array(z.strictObject({ path: PathSchema, mode: z.string().regex(/^[01][0-7]{3}$/) })),
  links: z.array(z.strictObject({ path: PathSchema, target: z.string().regex(/^[A-Za-z0-9._/-]+$/) })),
  files: z.array(z.strictObject({ path: PathSchema, text: z.string().max(65_536) })),
});
export type ImageRecipe = z.infer<typeof ImageRecipeSchema>;

export function recipeDigest(recipe: ImageRecipe): string {
  return `sha256:${createHash('sha256').update(canonicalJson(recipe)).digest('hex')}`;
}

/** Enough of JSON canonicalisation for recipes, whose only numbers are whole. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    const fields = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${fields.map(([key, field]) => `${JSON.stringify(key)}:${canonicalJson(field)}`).join(',')}}`;
  }
  return JSON.stringify(value);
}
