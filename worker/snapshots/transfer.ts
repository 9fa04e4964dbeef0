/** The door of hosts to stored snapshots: chunks and manifests, each under a token for this one snapshot. */
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { Sha256Schema, SnapshotIdSchema } from '../../shared/ids.ts';
import { MAX_MANIFEST_BYTES, MAX_STORED_CHUNK_BYTES } from '../../shared/snapshot.ts';
import { configurationOf } from '../configuration.ts';
import type { Env } from '../env.ts';
import { readRequestBytes } from '../identity/read-bounded.ts';
import { requireNotRevokedOfLate } from '../links/revoked-hosts.ts';
import { chunkKey, get, manifestKey, parseManifest, putChunk, putManifest } from './storage.ts';
import { type TransferClaims, verifyTransferToken } from './transfer-token.ts';

export const TRANSFER_PATHS = [
  '/hosts/v1/snapshots/:snapshot_id/chunks/:sha256',
  '/hosts/v1/snapshots/:snapshot_id/manifest',
] as const;
export const TRANSFER_METHODS = ['GET', 'PUT'] as const;

/** Null names the manifest. */
export interface TransferTarget {
  snapshotId: string;
  sha256: string | null;
}

export async function transferSnapshot(
  request: Request,
  env: Env,
  target: TransferTarget,
): Promise<Outcome<Response>> {
  const configuration = await configurationOf(env);
  const verified = await verifyTransferToken(request.headers.get('Authorization'), configuration);
  if (!verified.ok) return verified;
  const claims = verified.value;
  const direction = request.method === 'PUT' ? 'put' : 'get';
  const isNamed = target.sha256 === null || Sha256Schema.safeParse(target.sha256).success;
  if (!SnapshotIdSchema.safeParse(target.snapshotId).success || !isNamed) return missing();
  if (claims.snapshot !== target.snapshotId) return missing();
  if (claims.direction !== direction) return failure('forbidden', `the token is not one to ${direction}`);
  const standing = await requireNotRevokedOfLate(env, claims.host);
  if (!standing.ok) return standing;
  return direction === 'put' ? put(request, env, { claims, target }) : serve(env, { claims, target });
}

async function put(
  request: Request,
  { SNAPSHOTS }: Env,
  { claims, target }: { claims: TransferClaims; target: TransferTarget },
): Promise<Outcome<Response>> {
  const maxBytes = target.sha256 === null ? MAX_MANIFEST_BYTES : MAX_STORED_CHUNK_BYTES;
  const bytes = await readRequestBytes(request, maxBytes);
  if (bytes === undefined) return failure('payload_too_large', `at most ${maxBytes} bytes`);
  const place = { tenant: claims.tenant, snapshotId: claims.snapshot };
  const stored =
    target.sha256 === null
      ? await storeManifest(SNAPSHOTS, bytes, claims)
      : await putChunk(SNAPSHOTS, place, { sha256: target.sha256, bytes });
  return stored.ok ? success(new Response(null, { status: 204 })) : stored;
}

async function storeManifest(
  bucket: R2Bucket,
  bytes: Uint8Array<ArrayBuffer>,
  claims: TransferClaims,
): Promise<Outcome<null>> {
  const parsed = parseManifest(bytes);
  const isOfToken =
    parsed?.snapshot_id === claims.snapshot &&
    parsed.session_id === claims.session &&
    parsed.epoch === claims.epoch;
  if (parsed === undefined || !isOfToken) {
    return failure('invalid_request', 'not a manifest, or not the one of this token');
  }
  return putManifest(bucket, { tenant: claims.tenant, snapshotId: claims.snapshot }, { parsed, bytes });
}

async function serve(
  { SNAPSHOTS }: Env,
  { claims, target }: { claims: TransferClaims; target: TransferTarget },
): Promise<Outcome<Response>> {
  const place = { tenant: claims.tenant, snapshotId: claims.snapshot };
  const key = target.sha256 === null ? manifestKey(place) : chunkKey(place, target.sha256);
  const body = await get(SNAPSHOTS, key);
  if (!body.ok) return body;
  if (body.value === null) return missing();
  const headers = { 'content-type': 'application/octet-stream', 'cache-control': 'no-store' };
  return success(new Response(body.value, { headers }));
}

function missing(): Outcome<never> {
  return failure('not_found', 'no such part of a snapshot');
}
