/** Images in a folder of the OCI image layout: every blob is a file named by its digest. */
import { lstat, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { MAX_MANIFEST_BYTES } from '../limits.ts';
import { ImageRefusal } from '../refusal.ts';
import type { ImageBlobs } from './blobs.ts';
import type { Descriptor } from './manifest.ts';

export function layoutBlobs(dir: string): ImageBlobs {
  const pathOf = ({ digest }: Pick<Descriptor, 'digest'>): string =>
    join(dir, 'blobs/sha256', digest.slice('sha256:'.length));
  return {
    async document(digest) {
      await requireFile(pathOf({ digest }), digest, MAX_MANIFEST_BYTES);
      return readFile(pathOf({ digest }));
    },
    async fetch({ config, layers }) {
      for (const blob of [config, ...layers]) await requireFile(pathOf(blob), blob.digest, blob.size);
      return pathOf;
    },
  };
}

async function requireFile(path: string, digest: string, maxBytes: number): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (found === undefined) throw new ImageRefusal(`there is no ${digest} in it`);
  if (!found.isFile() || found.size > maxBytes) throw new ImageRefusal(`${digest} is not what its name says`);
}
