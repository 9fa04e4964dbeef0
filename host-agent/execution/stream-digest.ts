/**
 * SHA-256 of a stream that may go on on another host: the state of Node's own hash cannot be carried. The beginning of a
 * stream is kept instead of hashed, and most streams end in it; a longer one is hashed by a slower hash that can be.
 */
import { hash } from 'node:crypto';
import { createSHA256, type IHasher } from 'hash-wasm';
import * as z from 'zod';

const KEPT_BYTES = 512 * 1024;
const MAX_STATE_CHARACTERS = 1024;
/** What came before a hash was ready is kept, too: as much as a guest may send before it is heard. */
const MAX_KEPT_CHARACTERS = 8 * 1024 * 1024;

export const CarriedDigestSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('kept'), bytes: z.base64().max(MAX_KEPT_CHARACTERS) }),
  z.strictObject({ kind: z.literal('state'), state: z.base64().max(MAX_STATE_CHARACTERS) }),
]);
export type CarriedDigest = z.infer<typeof CarriedDigestSchema>;

/** One that is ready: to make one takes a turn or two, and a stream does not wait. */
let spare: IHasher | undefined = await createSHA256();

function takeHasher(): IHasher | undefined {
  const hasher = spare;
  spare = undefined;
  if (hasher !== undefined) {
    void createSHA256().then((next) => {
      spare ??= next;
    });
  }
  return hasher?.init();
}

/** Rejects where a state is of another version of the hash. */
export async function loadDigests(
  carried: Record<'stdout' | 'stderr', { digest: CarriedDigest }>,
): Promise<Record<'stdout' | 'stderr', StreamDigest>> {
  const { stdout, stderr } = carried;
  return { stdout: await StreamDigest.from(stdout.digest), stderr: await StreamDigest.from(stderr.digest) };
}

export class StreamDigest {
  #kept: Uint8Array[] = [];
  #keptBytes = 0;
  #hasher: IHasher | undefined;

  static async from(carried: CarriedDigest): Promise<StreamDigest> {
    const digest = new StreamDigest();
    if (carried.kind === 'kept') digest.update(Buffer.from(carried.bytes, 'base64'));
    else digest.#hasher = (await createSHA256()).load(Buffer.from(carried.state, 'base64'));
    return digest;
  }

  /** Takes bytes, which must not change afterwards. */
  update(bytes: Uint8Array): void {
    if (this.#hasher !== undefined) {
      this.#hasher.update(bytes);
      return;
    }
    this.#kept.push(bytes);
    this.#keptBytes += bytes.length;
    if (this.#keptBytes <= KEPT_BYTES) return;
    this.#hasher = takeHasher();
    if (this.#hasher === undefined) return;
    for (const kept of this.#kept) this.#hasher.update(kept);
    this.#kept = [];
  }

  /** Nothing can be added afterwards. */
  hex(): string {
    return this.#hasher?.digest('hex') ?? hash('sha256', Buffer.concat(this.#kept), 'hex');
  }

  carry(): CarriedDigest {
    if (this.#hasher !== undefined) {
      return { kind: 'state', state: Buffer.from(this.#hasher.save()).toString('base64') };
    }
    return { kind: 'kept', bytes: Buffer.concat(this.#kept).toString('base64') };
  }
}
