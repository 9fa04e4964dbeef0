/** How large an image may be: whatever is unpacked here was packed by somebody else. */
import * as z from 'zod';

const GIB = 1024 ** 3;

export const UnpackLimitsSchema = z.strictObject({
  /** Of all layers together, as unpacked archives: what is written is never more. */
  maxBytes: z.int().positive(),
  /** Of all layers together; folders that no layer names, but some path needs, count too. */
  maxEntries: z.int().positive(),
  /** What is left free on the disk for everybody else. */
  reservedBytes: z.int().nonnegative(),
});
export type UnpackLimits = z.infer<typeof UnpackLimitsSchema>;

export const UNPACK_LIMITS: UnpackLimits = {
  maxBytes: 16 * GIB,
  maxEntries: 500_000,
  reservedBytes: GIB,
};

export const MAX_MANIFEST_BYTES = 4 * 1024 ** 2;
export const MAX_CONFIG_BYTES = 4 * 1024 ** 2;
export const MAX_LAYERS = 128;
/** As they come, compressed. */
export const MAX_LAYER_BYTES = 8 * GIB;
