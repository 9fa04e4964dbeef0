/** Snapshots in R2: chunks and manifest of each below a prefix of its own, so that nothing of it outlives it. */
import { sha256Hex } from '../../shared/digest.ts';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { MAX_SNAPSHOT_CHUNKS, type SnapshotManifest, SnapshotManifestSchema } from '../../shared/snapshot.ts';
import { logWarning, messageOf } from '../objects/log.ts';

export interface SnapshotPlace {
  tenant: string;
  snapshotId: string;
}

const LIST_LIMIT = 1_000;

/** False where the bytes do not hash to the name. */
export async function putChunk(
  bucket: R2Bucket,
  place: SnapshotPlace,
  chunk: { sha256: string; bytes: Uint8Array<ArrayBuffer> },
): Promise<Outcome<null>> {
  if ((await sha256Hex(chunk.bytes)) !== chunk.sha256) {
    return failure('digest_mismatch', 'the bytes do not hash to the name of the chunk');
  }
  return attempt('chunk_not_stored', async () => {
    await bucket.put(chunkKey(place, chunk.sha256), chunk.bytes);
    return success(null);
  });
}

export async function putManifest(
  bucket: R2Bucket,
  place: SnapshotPlace,
  manifest: { parsed: SnapshotManifest; bytes: Uint8Array<ArrayBuffer> },
): Promise<Outcome<null>> {
  const missing = await missingChunks(bucket, place, manifest.parsed);
  if (!missing.ok) return missing;
  if (missing.value > 0) {
    return failure('snapshot_damaged', `${missing.value} chunks of the manifest are not stored`);
  }
  return attempt('manifest_not_stored', async () => {
    const key = manifestKey(place);
    const stored = await bucket.put(key, manifest.bytes, { onlyIf: { etagDoesNotMatch: '*' } });
    if (stored !== null) return success(null);
    const there = await bucket.get(key);
    const isSame =
      there !== null && (await sha256Hex(await bytesOf(there))) === (await sha256Hex(manifest.bytes));
    return isSame ? success(null) : failure('idempotency_conflict', 'the snapshot has another manifest');
  });
}

export async function get(bucket: R2Bucket, key: string): Promise<Outcome<ReadableStream | null>> {
  return attempt('snapshot_not_read', async () => success((await bucket.get(key))?.body ?? null));
}

/** The manifest, if it hashes to the digest. */
export async function readManifest(
  bucket: R2Bucket,
  place: SnapshotPlace,
  sha256: string,
): Promise<Outcome<SnapshotManifest>> {
  return attempt('manifest_not_read', async () => {
    const there = await bucket.get(manifestKey(place));
    if (there === null) return failure('snapshot_damaged', 'the manifest is not stored');
    const bytes = await bytesOf(there);
    const parsed = (await sha256Hex(bytes)) === sha256 ? parseManifest(bytes) : undefined;
    return parsed === undefined
      ? failure('snapshot_damaged', 'the manifest is not the one that was made')
      : success(parsed);
  });
}

/** The manifest, which is there only where all of its chunks are; null where there is none. */
export async function findManifest(
  bucket: R2Bucket,
  place: SnapshotPlace,
): Promise<Outcome<{ manifest: SnapshotManifest; sha256: string } | null>> {
  return attempt('manifest_not_read', async () => {
    const there = await bucket.get(manifestKey(place));
    if (there === null) return success(null);
    const bytes = await bytesOf(there);
    const manifest = parseManifest(bytes);
    return success(manifest === undefined ? null : { manifest, sha256: await sha256Hex(bytes) });
  });
}

export function parseManifest(bytes: Uint8Array): SnapshotManifest | undefined {
  try {
    return SnapshotManifestSchema.safeParse(JSON.parse(new TextDecoder().decode(bytes))).data;
  } catch {
    return undefined;
  }
}

async function bytesOf({ body }: Pick<R2ObjectBody, 'body'>): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await new Response(body).arrayBuffer());
}

/** Removes a part of what there is of a snapshot; true when nothing is left. */
export async function removeSome(bucket: R2Bucket, place: SnapshotPlace): Promise<boolean> {
  const { objects, truncated } = await bucket.list({ prefix: prefixOf(place), limit: LIST_LIMIT });
  if (objects.length > 0) await bucket.delete(objects.map(({ key }) => key));
  return !truncated;
}

async function missingChunks(
  bucket: R2Bucket,
  place: SnapshotPlace,
  { files }: SnapshotManifest,
): Promise<Outcome<number>> {
  const wanted = new Map(
    files.flatMap(({ chunks }) => chunks).map((chunk) => [chunkKey(place, chunk.sha256), chunk.stored_bytes]),
  );
  if (wanted.size > MAX_SNAPSHOT_CHUNKS) {
    return failure('payload_too_large', `at most ${MAX_SNAPSHOT_CHUNKS} chunks`);
  }
  return attempt('chunks_not_listed', async () => {
    let cursor: string | undefined;
    do {
      const page = await bucket.list({
        prefix: `${prefixOf(place)}chunks/`,
        limit: LIST_LIMIT,
        ...(cursor === undefined ? {} : { cursor }),
      });
      for (const { key, size } of page.objects) if (wanted.get(key) === size) wanted.delete(key);
      cursor = page.truncated ? page.cursor : undefined;
    } while (cursor !== undefined && wanted.size > 0);
    return success(wanted.size);
  });
}

/** What the storage throws says nothing to a caller but that it is not there. */
async function attempt<T>(event: string, work: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
  try {
    return await work();
  } catch (error: unknown) {
    logWarning(event, { detail: messageOf(error) });
    return failure('storage_unavailable', 'the storage of snapshots does not answer', { retry_after_s: 2 });
  }
}

function prefixOf({ tenant, snapshotId }: SnapshotPlace): string {
  return `${tenant}/${snapshotId}/`;
}

export function chunkKey(place: SnapshotPlace, sha256: string): string {
  return `${prefixOf(place)}chunks/${sha256}`;
}

export function manifestKey(place: SnapshotPlace): string {
  return `${prefixOf(place)}manifest`;
}
