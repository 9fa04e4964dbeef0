/** How an image lies in the image store: `<name>/<hex of the digest>/` with the root file system and its description. */
import { join } from 'node:path';
import * as z from 'zod';
import { ImageDigestSchema, Sha256Schema } from '../../shared/ids.ts';

export const IMAGE_FILE = 'image.json';
export const ROOTFS_DIR = 'rootfs';
export const IMAGE_NAME_PATTERN = /^[a-z][a-z0-9-]{0,62}$/;

export const ImageFileSchema = z.strictObject({
  name: z.string().regex(IMAGE_NAME_PATTERN),
  /** SHA-256 of the canonical recipe: what the image was made from. */
  digest: ImageDigestSchema,
  created_at: z.iso.datetime(),
  size_bytes: z.int().nonnegative(),
  /** Over names and metadata of the tree as built, to notice one that is no longer whole. */
  manifest_sha256: Sha256Schema,
  packages: z.array(z.string()),
});
export type ImageFile = z.infer<typeof ImageFileSchema>;

export function imageDir(storeDir: string, name: string, digest: string): string {
  return join(storeDir, name, digest.slice('sha256:'.length));
}
