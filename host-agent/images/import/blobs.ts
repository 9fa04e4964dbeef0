/** What an image is made of, wherever it lies: documents and layers, each by its digest. */
import type { Descriptor, ImageManifest } from './manifest.ts';

export interface ImageBlobs {
  /** The bytes of a manifest or an index, of at most `MAX_MANIFEST_BYTES`; whether they are the right ones is not checked. */
  document(digest: string): Promise<Uint8Array>;
  /** Has the configuration and all layers there; their paths are by digest, and what lies there is not checked. */
  fetch(manifest: ImageManifest, digest: string): Promise<(descriptor: Descriptor) => string>;
}
