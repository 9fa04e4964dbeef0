/** How an image lies in the image store: `<name>/<hex of the digest>/` with the root file system and its description. */
import { join } from 'node:path';
import * as z from 'zod';
import { ImageDigestSchema, Sha256Schema } from '../../shared/ids.ts';

export const IMAGE_FILE = 'image.json';
export const ROOTFS_DIR = 'rootfs';
/** Its time of change is when a session last started on the image. */
export const LAST_USE_FILE = 'last-use';
export const IMAGE_NAME_PATTERN = /^[a-z][a-z0-9-]{0,62}$/;

export const ImageFileSchema = z.strictObject({
  name: z.string().regex(IMAGE_NAME_PATTERN),
  /** SHA-256 of what the image was made from: the canonical recipe, or the manifest or index that was imported. */
  digest: ImageDigestSchema,
  created_at: z.iso.datetime(),
  /** Since when its name means this one, where it was not the newest of that name. */
  named_at: z.iso.datetime().optional(),
  size_bytes: z.int().nonnegative(),
  /** Over names and metadata of the tree as built, to notice one that is no longer whole. */
  manifest_sha256: Sha256Schema,
  packages: z.array(z.string()),
  /** Of an imported one. */
  imported: z
    .strictObject({
      source: z.string(),
      /** Of the build for this machine, which an index names. */
      platform_digest: ImageDigestSchema,
      tools: z.array(z.enum(['shell', 'python', 'node'])),
      environment: z.record(z.string(), z.string()),
    })
    .optional(),
});
export type ImageFile = z.infer<typeof ImageFileSchema>;

export function imageDir(storeDir: string, name: string, digest: string): string {
  return join(storeDir, name, digest.slice('sha256:'.length));
}
