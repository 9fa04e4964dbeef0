/** The bytes of an artifact as an answer: all of them or a range, under the conditions of the request. */
import * as z from 'zod';
import type { Artifact } from '../../shared/artifact.ts';
import { utf8 } from '../../shared/encoding.ts';
import type { ErrorCode } from '../../shared/errors.ts';
import type { FileFacts } from '../../shared/transfer.ts';
import { artifactPlace } from '../artifacts/place.ts';
import { notFound } from '../calls/own-session.ts';
import type { Configuration } from '../configuration.ts';
import { contentHeaders, factHeaders } from '../content/file-headers.ts';
import { answerKept } from '../content/kept-bytes.ts';
import { readSealed } from '../content/sealed-object.ts';
import type { Env } from '../env.ts';
import { BYTES_MEDIA_TYPE } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';

const BYTES = { [BYTES_MEDIA_TYPE]: z.string(), '*/*': z.string() };

export const ARTIFACT_BYTES_ANSWERS = {
  200: {
    description: 'The artifact',
    content: BYTES,
    headers: ['ETag', 'Last-Modified', 'Accept-Ranges', 'Content-Disposition'],
  },
  206: {
    description: 'The range of it',
    content: BYTES,
    headers: ['Content-Range', 'ETag', 'Last-Modified'],
  },
  304: { description: 'The artifact still has that `ETag`', headers: ['ETag'] },
} as const;

export const READ_ARTIFACT_ERRORS = [
  'not_found',
  'precondition_failed',
  'range_not_satisfiable',
  'storage_unavailable',
] as const satisfies readonly ErrorCode[];

interface Reader {
  request: Request;
  env: Env;
  configuration: Configuration;
}

export async function artifactBytes(reader: Reader, tenant: string, artifact: Artifact): Promise<Response> {
  const facts = factsOf(artifact);
  return answerKept(reader.request, {
    facts,
    refusals: {
      precondition_failed: 'the artifact is not as the condition says',
      range_not_satisfiable: `the artifact has ${facts.size} bytes`,
    },
    factHeaders: factHeaders(facts),
    headersOf: (part) => contentHeaders({ ...part, facts }, utf8(artifact.name)),
    bodyOf: ({ offset, length }) => stretch(reader, tenant, { artifact, offset, length }),
  });
}

export function wholeArtifact(
  reader: Pick<Reader, 'env' | 'configuration'>,
  tenant: string,
  artifact: Artifact,
): Promise<ReadableStream<Uint8Array>> {
  return stretch(reader, tenant, { artifact, offset: 0, length: artifact.bytes });
}

async function stretch(
  { env, configuration }: Pick<Reader, 'env' | 'configuration'>,
  tenant: string,
  { artifact, offset, length }: { artifact: Artifact; offset: number; length: number },
): Promise<ReadableStream<Uint8Array>> {
  const { artifact_id: artifactId, bytes: size } = artifact;
  const place = await artifactPlace(configuration.contentRoot, { tenant, artifactId });
  const body = unwrap(await readSealed(env.CONTENT, place, { offset, length, size }));
  // It was removed or replaced in this moment.
  if (body === null) throw notFound('no such artifact, or not yours');
  return body;
}

function factsOf({ bytes, sha256, created_at }: Artifact): FileFacts {
  return { type: 'file', size: bytes, mode: 0o644, modified_ms: Date.parse(created_at), etag: `"${sha256}"` };
}
