/**
 * Signed addresses of artifacts: their token is all that they need, and whatever is wrong with it is a missing artifact. What
 * bars the token that asked for one, bars the address.
 */
import { ArtifactSchema } from '../../shared/artifact.ts';
import { failure } from '../../shared/errors.ts';
import { type ArtifactGrant, verifyArtifactGrant } from '../artifacts/url-token.ts';
import { notFound } from '../calls/own-session.ts';
import { sha256Of } from '../content/file-headers.ts';
import { uploadBytesOf } from '../content/upload-size.ts';
import { BYTES_MEDIA_TYPE, JSON_MEDIA_TYPE } from '../middleware/body.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { artifactCalls, SAFE } from '../objects/object-calls.ts';
import { reply } from '../routing/reply.ts';
import { admitHolder, defineRoute, type Exchange } from '../routing/route.ts';
import { ARTIFACT_BYTES_ANSWERS, artifactBytes, READ_ARTIFACT_ERRORS } from './artifact-bytes.ts';
import { KEEP_ERRORS } from './artifacts.ts';
import { keepArtifact } from './keep-artifact.ts';

const PATH = '/v1/artifact-urls/{token}';
const LIMIT_ERRORS = ['rate_limited', 'overloaded', 'object_reset'] as const;

type GrantFor<Method extends ArtifactGrant['method']> = Extract<ArtifactGrant, { method: Method }>;

async function grantFor<Method extends ArtifactGrant['method']>(
  { configuration, env }: Exchange<'public'>,
  token: string,
  method: Method,
): Promise<GrantFor<Method>> {
  const verified = await verifyArtifactGrant(token, configuration);
  if (verified === undefined || !isFor(verified.grant, method)) throw missing();
  const { grant, issuedAtMs } = verified;
  const { tenant, sub: subject, token: tokenId, key: apiKeyId } = grant;
  const holder = { tenant, subject, tokenId, apiKeyId, issuedAtMs };
  if ((await admitHolder(env, holder, configuration)) !== undefined) throw missing();
  return grant;
}

function isFor<Method extends ArtifactGrant['method']>(
  grant: ArtifactGrant,
  method: Method,
): grant is GrantFor<Method> {
  return grant.method === method;
}

function missing() {
  return notFound('no such artifact, or not yours');
}

const download = defineRoute({
  method: 'GET',
  path: PATH,
  operationId: 'downloadArtifact',
  summary:
    'The bytes of the artifact that the address is for, while it is the one that the address was made for',
  access: { kind: 'public' },
  headers: {
    Range: 'One range of bytes.',
    'If-Range': 'The range counts only while the artifact has this `ETag`.',
    'If-None-Match': 'Only unless the artifact has one of these.',
  },
  answers: ARTIFACT_BYTES_ANSWERS,
  errors: [...READ_ARTIFACT_ERRORS, ...LIMIT_ERRORS],
  handle: async (exchange, { params }) => {
    const { tenant, sub, name, artifact: id } = await grantFor(exchange, params.token, 'GET');
    const artifact = unwrap(await artifactCalls(exchange.env, tenant)((stub) => stub.find(sub, name), SAFE));
    if (artifact.artifact_id !== id) throw missing();
    return artifactBytes(exchange, tenant, artifact);
  },
});

const upload = defineRoute({
  method: 'PUT',
  path: PATH,
  operationId: 'uploadArtifact',
  summary: 'Upload the artifact that the address is for; one that broke off needs a new address',
  access: { kind: 'public' },
  headers: { 'Content-Digest': '`sha-256=:…:` of the bytes: others are refused.' },
  streamed: { mediaType: BYTES_MEDIA_TYPE },
  answers: { 201: { description: 'The artifact', content: { [JSON_MEDIA_TYPE]: ArtifactSchema } } },
  errors: [...KEEP_ERRORS, ...LIMIT_ERRORS, 'not_found', 'digest_mismatch'],
  handle: async (exchange, { params }) => {
    const grant = await grantFor(exchange, params.token, 'PUT');
    const { headers, body } = exchange.request;
    const bytes = uploadBytesOf(headers, grant.max_bytes);
    if (bytes > grant.max_bytes) throw tooLarge(grant.max_bytes);
    const artifact = {
      artifactId: grant.artifact,
      tenant: grant.tenant,
      subject: grant.sub,
      name: grant.name,
      maxBytes: bytes,
      source: null,
    };
    const content = { body, sha256: sha256Of(headers) };
    return reply(201, unwrap(await keepArtifact(exchange, artifact, content)));
  },
});

function tooLarge(maxBytes: number): Refusal {
  return new Refusal(failure('payload_too_large', `the address is for at most ${maxBytes} bytes`));
}

export const artifactUrlRoutes = [download, upload];
