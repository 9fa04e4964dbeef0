/** The documents that describe an image, in the formats of OCI and of Docker. Each is parsed only after its digest held. */
import { hash } from 'node:crypto';
import * as z from 'zod';
import { ImageDigestSchema } from '../../../shared/ids.ts';
import { MAX_CONFIG_BYTES, MAX_LAYER_BYTES, MAX_LAYERS } from '../limits.ts';
import { ImageRefusal } from '../refusal.ts';

const DescriptorSchema = z.object({
  mediaType: z.string().optional(),
  digest: ImageDigestSchema,
  size: z.int().nonnegative(),
});
export type Descriptor = z.infer<typeof DescriptorSchema>;

const PlatformSchema = z.object({ os: z.string(), architecture: z.string() });
const IndexSchema = z.object({
  manifests: z.array(DescriptorSchema.extend({ platform: PlatformSchema.optional() })).max(1024),
});
const ManifestSchema = z.object({
  schemaVersion: z.literal(2),
  config: DescriptorSchema,
  layers: z.array(DescriptorSchema).min(1).max(MAX_LAYERS),
});
export type ImageManifest = z.infer<typeof ManifestSchema>;

const ConfigSchema = z.object({
  os: z.string(),
  architecture: z.string(),
  config: z.object({ Env: z.array(z.string()).nullish() }).nullish(),
  rootfs: z.object({ type: z.literal('layers'), diff_ids: z.array(ImageDigestSchema) }),
});
export type ImageConfig = z.infer<typeof ConfigSchema>;

const CONFIG_TYPES: readonly string[] = [
  'application/vnd.oci.image.config.v1+json',
  'application/vnd.docker.container.image.v1+json',
];
/** Those that a registry need not have, and those that are encrypted, are not among them. */
const LAYER_TYPES: readonly string[] = [
  'application/vnd.oci.image.layer.v1.tar',
  'application/vnd.oci.image.layer.v1.tar+gzip',
  'application/vnd.oci.image.layer.v1.tar+zstd',
  'application/vnd.docker.image.rootfs.diff.tar',
  'application/vnd.docker.image.rootfs.diff.tar.gzip',
];

export type Document =
  | { kind: 'index'; descriptor: Descriptor }
  | { kind: 'manifest'; manifest: ImageManifest };

/** An image, or the list of its builds, of which the one for this machine is meant. */
export function readDocument(bytes: Uint8Array, digest: string, architecture: string): Document {
  const value = readVerified(bytes, digest, 'the manifest');
  const index = IndexSchema.safeParse(value);
  if (index.success) {
    const descriptor = index.data.manifests.find(
      ({ platform }) => platform?.os === 'linux' && platform.architecture === architecture,
    );
    if (descriptor !== undefined) return { kind: 'index', descriptor };
    throw new ImageRefusal(`the image has no build for linux on ${architecture}`);
  }
  const manifest = ManifestSchema.safeParse(value);
  if (!manifest.success) throw new ImageRefusal('the digest is not that of an image');
  requireKnownTypes(manifest.data);
  return { kind: 'manifest', manifest: manifest.data };
}

function requireKnownTypes({ config, layers }: ImageManifest): void {
  if (config.mediaType === undefined || !CONFIG_TYPES.includes(config.mediaType)) {
    throw new ImageRefusal(
      `the digest is that of ${config.mediaType ?? 'something without a type'}, not of an image`,
    );
  }
  if (config.size > MAX_CONFIG_BYTES) throw new ImageRefusal('the configuration of the image is too large');
  for (const { mediaType = 'no type', size } of layers) {
    if (!LAYER_TYPES.includes(mediaType)) throw new ImageRefusal(`the image has a layer of ${mediaType}`);
    if (size > MAX_LAYER_BYTES) throw new ImageRefusal(`the image has a layer of ${size} bytes`);
  }
}

export function readConfig(bytes: Uint8Array, manifest: ImageManifest, architecture: string): ImageConfig {
  const value = readVerified(bytes, manifest.config.digest, 'the configuration');
  const parsed = ConfigSchema.safeParse(value);
  if (!parsed.success) throw new ImageRefusal('the configuration of the image is not one');
  const config = parsed.data;
  if (config.os !== 'linux' || config.architecture !== architecture) {
    throw new ImageRefusal(
      `the image is for ${config.os} on ${config.architecture}, this machine is linux on ${architecture}`,
    );
  }
  if (config.rootfs.diff_ids.length !== manifest.layers.length) {
    throw new ImageRefusal('the configuration of the image names other layers than its manifest');
  }
  return config;
}

function readVerified(bytes: Uint8Array, digest: string, what: string): unknown {
  if (`sha256:${hash('sha256', bytes)}` !== digest) {
    throw new ImageRefusal(`${what} that came is not the one with the digest ${digest}`);
  }
  try {
    return JSON.parse(Buffer.from(bytes).toString('utf8'));
  } catch {
    throw new ImageRefusal(`${what} of the image is not JSON`);
  }
}
