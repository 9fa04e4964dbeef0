/** Whether a blob is the one that its manifest names. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { ImageRefusal } from '../refusal.ts';
import type { Descriptor } from './manifest.ts';

export async function requireBlob(path: string, { digest, size }: Descriptor): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (found?.isFile() !== true || found.size !== size) {
    throw new ImageRefusal(`${digest} did not come, or not with the size that the manifest says`);
  }
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  if (`sha256:${hash.digest('hex')}` !== digest) {
    throw new ImageRefusal(`what came as ${digest} has another digest`);
  }
}
