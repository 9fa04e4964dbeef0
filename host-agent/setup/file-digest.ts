/** Digests of files, and the check every download must pass. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { SetupFailure } from './failure.ts';

export type PinnedDigest = { algorithm: 'sha256' | 'sha512'; hex: string };

export async function fileDigest(path: string, algorithm: PinnedDigest['algorithm']): Promise<string> {
  const hash = createHash(algorithm);
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}

/** Throws unless the file is byte for byte the pinned one. */
export async function requireDigest(what: string, path: string, pinned: PinnedDigest): Promise<void> {
  const found = await fileDigest(path, pinned.algorithm);
  if (found !== pinned.hex) {
    throw new SetupFailure(
      `${what} is not the pinned file: expected ${pinned.algorithm} ${pinned.hex}, found ${found}`,
    );
  }
}
