/** Keeps the bytes of a stream as an artifact: a place first, then the bytes as they come, then its name. */
import { type Artifact, MAX_ARTIFACT_BYTES } from '../../shared/artifact.ts';
import { failure, type Outcome } from '../../shared/errors.ts';
import { artifactPlace } from '../artifacts/place.ts';
import type { Configuration } from '../configuration.ts';
import { openUpload, uploadRoom } from '../content/open-uploads.ts';
import {
  type SealedPlace,
  type SealedSource,
  type StoredFacts,
  storeSealed,
} from '../content/sealed-object.ts';
import type { Env } from '../env.ts';
import type { NewArtifact } from '../objects/artifacts/port.ts';
import { logWarning, messageOf } from '../objects/log.ts';
import { artifactCalls, SAFE, UNSAFE } from '../objects/object-calls.ts';

export interface Keeper {
  env: Env;
  configuration: Configuration;
  waitUntil: (promise: Promise<unknown>) => void;
}

export interface KeptContent {
  body: ReadableStream<Uint8Array> | null;
  /** What the bytes must hash to, where somebody says so. */
  sha256: string | null;
}

export async function keepArtifact(
  { env, configuration, waitUntil }: Keeper,
  artifact: NewArtifact,
  content: KeptContent,
): Promise<Outcome<Artifact>> {
  const { artifactId, tenant, maxBytes } = artifact;
  if (maxBytes > MAX_ARTIFACT_BYTES) {
    return failure('payload_too_large', `an artifact has at most ${MAX_ARTIFACT_BYTES} bytes`);
  }
  // First, because an id is good for one upload: whoever is refused here may use the same address again.
  const room = await uploadRoom(tenant, maxBytes);
  if (!room.ok) return room;
  const begunAtMs = Date.now();
  const calls = artifactCalls(env, tenant);
  const begun = await calls((stub) => stub.begin(artifact), UNSAFE);
  if (!begun.ok) return begun;
  const place = await artifactPlace(configuration.contentRoot, { tenant, artifactId });
  const stored = await storeInTurn(env.CONTENT, place, { tenant, body: content.body, maxBytes, begunAtMs });
  const kept =
    stored.ok && content.sha256 !== null && stored.value.sha256 !== content.sha256
      ? failure('digest_mismatch', 'the bytes do not hash to the digest that was said')
      : stored;
  if (kept.ok) {
    const completed = await calls((stub) => stub.complete({ artifactId, ...kept.value }), SAFE);
    // Its object gave it up and knows of no bytes any more. After any other failure it may have them, or sweeps them itself.
    if (!completed.ok && completed.code === 'transfer_failed') {
      await env.CONTENT.delete(place.objectKey).catch((error: unknown) => {
        logWarning('content_not_deleted', { detail: messageOf(error) });
      });
    }
    return completed;
  }
  waitUntil(calls((stub) => stub.abandon(artifactId), SAFE).catch(() => undefined));
  return kept;
}

async function storeInTurn(
  bucket: R2Bucket,
  place: SealedPlace,
  { tenant, ...source }: Omit<SealedSource, 'turn'> & { tenant: string },
): Promise<Outcome<StoredFacts>> {
  const upload = await openUpload(tenant);
  if (!upload.ok) return upload;
  const turn = upload.value;
  try {
    return await storeSealed(bucket, place, { ...source, turn });
  } finally {
    turn.leave();
  }
}
