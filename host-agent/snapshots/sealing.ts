/** How a piece of a checkpoint is stored: compressed, then sealed under the key of its snapshot. */
import { type BinaryLike, createHmac, webcrypto } from 'node:crypto';
import { promisify } from 'node:util';
import { constants, zstdCompress, zstdDecompress } from 'node:zlib';
import { SNAPSHOT_KEY_BYTES, SNAPSHOT_PIECE_BYTES } from '../../shared/snapshot.ts';

const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** What does not compress is given up on soon. */
const COMPRESSION_LEVEL = 1;
/** 256 KiB: what finds as much as a larger one, and does not fill as much memory for each piece. */
const WINDOW_LOG = 18;

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

export interface SealedChunk {
  sha256: string;
  stored: Uint8Array<ArrayBuffer>;
}

/** Of one snapshot. The work is done by other threads. */
export class Sealing {
  readonly #key: webcrypto.CryptoKey;
  readonly #nonceKey: Buffer;
  readonly #additionalData: Uint8Array<ArrayBuffer>;

  private constructor(key: webcrypto.CryptoKey, nonceKey: Buffer, snapshotId: string) {
    this.#key = key;
    this.#nonceKey = nonceKey;
    this.#additionalData = new TextEncoder().encode(snapshotId);
  }

  /** Throws where the key is not one: a grant's schema has checked it. */
  static async open(snapshotId: string, keyBase64url: string): Promise<Sealing> {
    const raw = new Uint8Array(Buffer.from(keyBase64url, 'base64url'));
    if (raw.length !== SNAPSHOT_KEY_BYTES) throw new TypeError('a key of 32 bytes was expected');
    const key = await webcrypto.subtle.importKey('raw', raw, 'AES-GCM', false, ['encrypt', 'decrypt']);
    return new Sealing(key, hmac(raw, 'sandgate snapshot nonce'), snapshotId);
  }

  /**
   * The nonce is derived from what is sealed: equal pieces are equal when they are stored, and no two different ones have
   * the same nonce.
   */
  async seal(piece: Uint8Array): Promise<SealedChunk> {
    const compressed = await compress(piece, {
      params: {
        [constants.ZSTD_c_compressionLevel]: COMPRESSION_LEVEL,
        [constants.ZSTD_c_windowLog]: WINDOW_LOG,
      },
    });
    const nonce = new Uint8Array(hmac(this.#nonceKey, compressed).subarray(0, NONCE_BYTES));
    const sealed = await webcrypto.subtle.encrypt(this.#algorithm(nonce), this.#key, compressed);
    const stored = new Uint8Array(NONCE_BYTES + sealed.byteLength);
    stored.set(nonce);
    stored.set(new Uint8Array(sealed), NONCE_BYTES);
    return { sha256: await sha256Of(stored), stored };
  }

  /** Undefined for what is not a piece of this size that was sealed under this key. */
  async open(stored: Uint8Array<ArrayBuffer>, bytes: number): Promise<Uint8Array | undefined> {
    if (bytes > SNAPSHOT_PIECE_BYTES || stored.length <= NONCE_BYTES + TAG_BYTES) return undefined;
    try {
      const nonce = stored.subarray(0, NONCE_BYTES);
      const sealed = stored.subarray(NONCE_BYTES);
      const compressed = await webcrypto.subtle.decrypt(this.#algorithm(nonce), this.#key, sealed);
      const piece = await decompress(new Uint8Array(compressed), { maxOutputLength: bytes });
      return piece.length === bytes ? piece : undefined;
    } catch {
      return undefined;
    }
  }

  #algorithm(nonce: Uint8Array<ArrayBuffer>): webcrypto.AesGcmParams {
    return { name: 'AES-GCM', iv: nonce, additionalData: this.#additionalData, tagLength: 8 * TAG_BYTES };
  }
}

function hmac(key: BinaryLike, data: BinaryLike): Buffer {
  return createHmac('sha256', key).update(data).digest();
}

export async function sha256Of(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return Buffer.from(await webcrypto.subtle.digest('SHA-256', bytes)).toString('hex');
}
