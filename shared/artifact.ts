/** Artifacts: files that are kept beyond their session, under a name of their owner's. */
import * as z from 'zod';
import { SessionIdSchema, Sha256Schema } from './ids.ts';
import { MAX_PATH_BYTES } from './transfer.ts';

/** No slash, and no dot at the beginning: a name is no path. */
export const ArtifactNameSchema = z.string().regex(/^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/);
export const ArtifactIdSchema = z.string().regex(/^art_[A-Za-z0-9_-]{22}$/);

export const MAX_ARTIFACT_BYTES = 2 * 1024 ** 3;
export const MAX_ARTIFACT_URL_LIFETIME_S = 900;

const PathSchema = z.string().min(1).max(MAX_PATH_BYTES);

/** Body of `POST /v1/sessions/{id}/artifacts`. */
export const KeepArtifactSchema = z.strictObject({
  path: PathSchema.describe('A file below /workspace, or an absolute one.'),
  name: ArtifactNameSchema.optional().describe('The last part of `path` where it is left out.'),
});

export const ArtifactSchema = z.object({
  name: ArtifactNameSchema,
  /** Changes when the artifact is replaced. */
  artifact_id: ArtifactIdSchema,
  bytes: z.int().min(0),
  sha256: Sha256Schema,
  /** The session and the path that it was copied from; null for one that was uploaded. */
  source: z.object({ session_id: SessionIdSchema, path: z.string() }).nullable(),
  created_at: z.iso.datetime(),
});
export type Artifact = z.infer<typeof ArtifactSchema>;

export const ArtifactListSchema = z.object({
  artifacts: z.array(ArtifactSchema),
  next_cursor: z.string().nullable(),
});
export type ArtifactList = z.infer<typeof ArtifactListSchema>;

/** Body of `POST /v1/artifacts/{name}/url`. */
export const CreateArtifactUrlSchema = z
  .strictObject({
    method: z.enum(['GET', 'PUT']),
    expires_in_s: z.int().min(1).max(MAX_ARTIFACT_URL_LIFETIME_S).default(MAX_ARTIFACT_URL_LIFETIME_S),
    max_bytes: z
      .int()
      .min(1)
      .max(MAX_ARTIFACT_BYTES)
      .optional()
      .describe('Of an upload: how many bytes it may have. It is needed for PUT.'),
  })
  .refine(({ method, max_bytes }) => (method === 'PUT') === (max_bytes !== undefined), {
    path: ['max_bytes'],
    message: 'a number of bytes for PUT, and none for GET',
  });

export const ArtifactUrlSchema = z.object({
  url: z.url(),
  method: z.enum(['GET', 'PUT']),
  expires_at: z.iso.datetime(),
  max_bytes: z.int().nullable(),
});
export type ArtifactUrl = z.infer<typeof ArtifactUrlSchema>;

/** Body of `POST /v1/sessions/{id}/files-from`. */
export const FilesFromSchema = z.strictObject({
  artifact: ArtifactNameSchema,
  path: PathSchema.describe('The file to write, below /workspace or absolute; folders above it are made.'),
  mode: z
    .string()
    .regex(/^0?[0-7]{1,3}$/)
    .optional()
    .describe('Permissions in octal, such as 0755.'),
});
