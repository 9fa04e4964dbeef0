/** What the unpacking process is told on its standard input, and what it says at its end; one line of JSON each. */
import * as z from 'zod';
import { Sha256Schema } from '../../../shared/ids.ts';
import { UnpackLimitsSchema } from '../limits.ts';

export const UnpackJobSchema = z.strictObject({
  /** Empty, and writable for the user. */
  rootfsPath: z.string(),
  userId: z.int().positive(),
  /** The lowest first. */
  layers: z.array(
    z.strictObject({
      path: z.string(),
      /** SHA-256 of the archive, uncompressed, as the image's configuration has it. */
      diffSha256: Sha256Schema,
    }),
  ),
  limits: UnpackLimitsSchema,
});
export type UnpackJob = z.infer<typeof UnpackJobSchema>;

export const UnpackReportSchema = z.discriminatedUnion('ok', [
  z.strictObject({
    ok: z.literal(true),
    entries: z.int(),
    left_out: z.int(),
    set_id_removed: z.int(),
  }),
  z.strictObject({ ok: z.literal(false), detail: z.string() }),
]);
export type UnpackReport = z.infer<typeof UnpackReportSchema>;
