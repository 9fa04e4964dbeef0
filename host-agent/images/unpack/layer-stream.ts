/** A layer as the plain archive that it is compressed from, counted and hashed as it goes by. */
import { createHash, type Hash } from 'node:crypto';
import { createReadStream, readSync, statfsSync } from 'node:fs';
import { pipeline } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import type { UnpackLimits } from '../limits.ts';
import { ImageRefusal } from '../refusal.ts';

const LOOK_AT_DISK_EVERY_BYTES = 64 * 1024 ** 2;
const GZIP_MAGIC = '1f8b';
const ZSTD_MAGIC = '28b52ffd';

/** Of all layers of an image. */
export class ByteBudget {
  readonly #limits: UnpackLimits;
  #bytes = 0;
  #nextLookBytes = 0;

  constructor(limits: UnpackLimits) {
    this.#limits = limits;
  }

  take(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes > this.#limits.maxBytes) {
      throw new ImageRefusal(`the image is larger than ${this.#limits.maxBytes.toLocaleString('en')} bytes`);
    }
    if (this.#bytes < this.#nextLookBytes) return;
    this.#nextLookBytes = this.#bytes + LOOK_AT_DISK_EVERY_BYTES;
    const { bavail, bsize } = statfsSync('.');
    if (bavail * bsize < this.#limits.reservedBytes + LOOK_AT_DISK_EVERY_BYTES) {
      throw new ImageRefusal('there is not enough space on the disk');
    }
  }
}

export interface LayerStream extends AsyncIterable<Buffer> {
  /** Of all that went by. */
  sha256(): string;
}

/** What is said of its compression elsewhere is often wrong; its first bytes are not. */
export function layerStream(descriptor: number, budget: ByteBudget): LayerStream {
  const magic = Buffer.alloc(4);
  readSync(descriptor, magic, 0, magic.length, 0);
  const file = createReadStream('', { fd: descriptor, start: 0, autoClose: true });
  const hash = createHash('sha256');
  const decompressor = decompressorFor(magic.toString('hex'));
  if (decompressor === undefined) return counted(file, hash, budget);
  // A fault of either ends both, and reaches the reader through the second.
  pipeline(file, decompressor, () => undefined);
  return counted(decompressor, hash, budget);
}

function decompressorFor(magic: string) {
  if (magic.startsWith(GZIP_MAGIC)) return createGunzip();
  return magic === ZSTD_MAGIC ? createZstdDecompress() : undefined;
}

function counted(stream: AsyncIterable<unknown>, hash: Hash, budget: ByteBudget): LayerStream {
  return {
    async *[Symbol.asyncIterator]() {
      for await (const chunk of stream) {
        if (!Buffer.isBuffer(chunk)) continue;
        budget.take(chunk.length);
        hash.update(chunk);
        yield chunk;
      }
    },
    sha256: () => hash.digest('hex'),
  };
}
