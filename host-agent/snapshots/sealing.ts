/** The pieces of one snapshot, sealed and opened under its key. The work is done by other threads. */
import { type BinaryLike, createHmac } from 'node:crypto';
import { SNAPSHOT_KEY_BYTES, SNAPSHOT_PIECE_BYTES } from '../../shared/snapshot.ts';
import type { SealedPiece, SealingKeys } from './sealed-piece.ts';
import type { SealingThreads } from './sealing-threads.ts';

export class Sealing {
  readonly #threads: SealingThreads;
  readonly #keys: SealingKeys;

  /** Throws where the key is not one: a grant's schema has checked it. */
  constructor(threads: SealingThreads, snapshotId: string, keyBase64url: string) {
    const key = Buffer.from(keyBase64url, 'base64url');
    if (key.length !== SNAPSHOT_KEY_BYTES) throw new TypeError('a key of 32 bytes was expected');
    this.#threads = threads;
    this.#keys = {
      key,
      nonceKey: hmac(key, 'sandgate snapshot nonce'),
      additionalData: new TextEncoder().encode(snapshotId),
    };
  }

  /** What is sealed is given away. */
  seal(piece: Uint8Array<ArrayBuffer>): Promise<SealedPiece> {
    return this.#threads.seal(this.#keys, piece);
  }

  /** The same, with the result in `into`, which is given away too; `spent` is the memory of the piece. */
  sealInto(
    piece: Uint8Array<ArrayBuffer>,
    into: ArrayBuffer,
  ): Promise<SealedPiece & { spent: ArrayBuffer | null }> {
    return this.#threads.sealInto(this.#keys, piece, into);
  }

  /** Undefined for what is not a piece of this size that was sealed under this key. What is opened is given away. */
  async open(stored: Uint8Array<ArrayBuffer>, bytes: number): Promise<Uint8Array | undefined> {
    if (bytes > SNAPSHOT_PIECE_BYTES) return undefined;
    return this.#threads.open(this.#keys, stored, bytes);
  }
}

function hmac(key: BinaryLike, data: BinaryLike): Buffer {
  return createHmac('sha256', key).update(data).digest();
}
