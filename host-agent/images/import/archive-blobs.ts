/** Images in one tar file of the OCI image layout: its blobs are copied out, and nothing else of it. */
import { closeSync, createReadStream, mkdirSync, openSync, statfsSync, writeSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import type { UnpackLimits } from '../limits.ts';
import { ImageRefusal } from '../refusal.ts';
import { readTar, type TarEntry, type TarReceiver } from '../tar/reader.ts';
import type { ImageBlobs } from './blobs.ts';
import { layoutBlobs } from './layout-blobs.ts';

const BLOB = /^(?:\.\/)?blobs\/sha256\/([0-9a-f]{64})$/;

/** `dir` is made. */
export async function archiveBlobs(file: string, dir: string, limits: UnpackLimits): Promise<ImageBlobs> {
  const found = await lstat(file).catch(() => undefined);
  if (found?.isFile() !== true) throw new ImageRefusal(`there is no archive ${file}`);
  const blobsDir = join(dir, 'blobs/sha256');
  mkdirSync(blobsDir, { recursive: true, mode: 0o700 });
  const { bavail, bsize } = statfsSync(dir);
  if (found.size > limits.maxBytes || found.size + limits.reservedBytes > bavail * bsize) {
    throw new ImageRefusal('there is not enough space on the disk for what is in the archive');
  }
  let entries = 0;
  await readTar(createReadStream(file), {
    onHeader() {
      entries += 1;
      if (entries > limits.maxEntries) throw new ImageRefusal('the archive has too many entries');
    },
    onEntry: (entry) => blobReceiver(entry, blobsDir),
  });
  return layoutBlobs(dir);
}

function blobReceiver({ name, type }: TarEntry, blobsDir: string): TarReceiver | undefined {
  const hex = BLOB.exec(name)?.[1];
  if (type !== 'file' || hex === undefined) return undefined;
  const descriptor = openSync(join(blobsDir, hex), 'w', 0o600);
  return {
    write(bytes) {
      for (let at = 0; at < bytes.length; ) at += writeSync(descriptor, bytes, at);
    },
    end: () => closeSync(descriptor),
  };
}
