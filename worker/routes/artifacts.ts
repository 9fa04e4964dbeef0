/** Artifacts: files kept beyond their session, made of a file of a session or uploaded, and put into sessions. */
import * as z from 'zod';
import {
  type Artifact,
  ArtifactListSchema,
  ArtifactNameSchema,
  ArtifactSchema,
  ArtifactUrlSchema,
  CreateArtifactUrlSchema,
  FilesFromSchema,
  KeepArtifactSchema,
} from '../../shared/artifact.ts';
import type { ErrorCode } from '../../shared/errors.ts';
import { newId } from '../../shared/ids.ts';
import { ArtifactGrantSchema, signArtifactGrant } from '../artifacts/url-token.ts';
import { callerOf, notFound, ownSession } from '../calls/own-session.ts';
import { readTransfer, TRANSFER_ERRORS, writeTransfer } from '../calls/session-transfer.ts';
import { sha256Of } from '../content/file-headers.ts';
import { pathOfText } from '../content/file-path.ts';
import { uploadBytesOf } from '../content/upload-size.ts';
import { requireScopes } from '../middleware/authentication.ts';
import { BYTES_MEDIA_TYPE, invalid, JSON_MEDIA_TYPE } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { artifactCalls, SAFE, UNSAFE } from '../objects/object-calls.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';
import {
  ARTIFACT_BYTES_ANSWERS,
  artifactBytes,
  READ_ARTIFACT_ERRORS,
  wholeArtifact,
} from './artifact-bytes.ts';
import { FILE_WRITE_ERRORS, WRITTEN_ANSWERS, writtenReply } from './files.ts';
import { keepArtifact } from './keep-artifact.ts';

const READ = { kind: 'tenant', scopes: ['sessions:read'] } as const;
const WRITE = { kind: 'tenant', scopes: ['sessions:write'] } as const;

export const KEEP_ERRORS = [
  'quota_exceeded',
  'payload_too_large',
  'transfer_failed',
  'storage_unavailable',
] as const satisfies readonly ErrorCode[];

const artifactAnswer = (description: string) => ({
  description,
  content: { [JSON_MEDIA_TYPE]: ArtifactSchema },
});

const keepFile = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/artifacts',
  operationId: 'keepArtifact',
  summary: 'Copy a file of the session to where it outlives it; it replaces the artifact of its name',
  access: WRITE,
  body: KeepArtifactSchema,
  answers: { 201: { ...artifactAnswer('The artifact'), headers: ['Location'] } },
  errors: [
    ...KEEP_ERRORS,
    ...TRANSFER_ERRORS,
    'is_directory',
    'not_a_directory',
    'not_a_regular_file',
    'permission_denied',
    'file_refused',
  ],
  handle: async (exchange, { params, body }) => {
    const session = await ownSession(exchange, params.session_id);
    const path = pathOfText(body.path, 'body.path');
    const name = body.name ?? lastNameOf(body.path);
    const { head, body: bytes } = await readTransfer(session, {
      operation: 'read',
      path: path.base64,
      if_match: null,
      if_none_match: null,
      range: null,
      if_range: null,
      head: false,
    });
    const artifact = await keep(exchange, {
      name,
      maxBytes: head.length ?? 0,
      source: { session_id: session.sessionId, path: body.path },
      content: { body: bytes, sha256: null },
    });
    return reply(201, artifact, { Location: `/v1/artifacts/${name}` });
  },
});

function lastNameOf(path: string): string {
  const name = ArtifactNameSchema.safeParse(path.split('/').at(-1));
  if (name.success) return name.data;
  throw invalid([
    { path: 'body.name', expected: 'a name, because the last part of the path is none for an artifact' },
  ]);
}

async function keep(
  exchange: Exchange<'tenant'>,
  about: Pick<Parameters<typeof keepArtifact>[1], 'name' | 'maxBytes' | 'source'> & {
    content: Parameters<typeof keepArtifact>[2];
  },
): Promise<Artifact> {
  const { content, ...rest } = about;
  const artifact = { ...callerOf(exchange), artifactId: newId('art'), ...rest };
  return unwrap(await keepArtifact(exchange, artifact, content));
}

const listArtifacts = defineRoute({
  method: 'GET',
  path: '/v1/artifacts',
  operationId: 'listArtifacts',
  summary: 'The artifacts of the caller, in the order of their names',
  access: READ,
  query: z.strictObject({
    limit: z.coerce.number().int().min(1).max(100).default(50).describe('Artifacts in one answer.'),
    cursor: z.string().min(1).max(128).optional().describe('`next_cursor` of the answer before.'),
  }),
  answers: { 200: { description: 'A page', content: { [JSON_MEDIA_TYPE]: ArtifactListSchema } } },
  errors: [],
  handle: async (exchange, { query }) => {
    const { tenant, subject } = callerOf(exchange);
    const page = { subject, after: query.cursor ?? '', limit: query.limit };
    return reply(200, unwrap(await artifactCalls(exchange.env, tenant)((stub) => stub.list(page), SAFE)));
  },
});

async function ownArtifact(exchange: Exchange<'tenant'>, name: string): Promise<Artifact> {
  const { tenant, subject } = callerOf(exchange);
  const known = artifactNameOf(name);
  return unwrap(await artifactCalls(exchange.env, tenant)((stub) => stub.find(subject, known), SAFE));
}

function artifactNameOf(text: string): string {
  if (ArtifactNameSchema.safeParse(text).success) return text;
  throw notFound('no such artifact, or not yours');
}

const getArtifact = defineRoute({
  method: 'GET',
  path: '/v1/artifacts/{artifact_name}',
  operationId: 'getArtifact',
  summary: 'One artifact',
  access: READ,
  answers: { 200: artifactAnswer('The artifact') },
  errors: ['not_found'],
  handle: async (exchange, { params }) => reply(200, await ownArtifact(exchange, params.artifact_name)),
});

const CONDITION_HEADERS = {
  Range: 'One range of bytes; several are answered with the whole artifact.',
  'If-Range': 'The range counts only while the artifact has this `ETag`.',
  'If-Match': 'Only while the artifact has one of these.',
  'If-None-Match': 'Only unless the artifact has one of these.',
};

const readArtifact = defineRoute({
  method: 'GET',
  path: '/v1/artifacts/{artifact_name}/content',
  operationId: 'readArtifact',
  summary: 'The bytes of an artifact',
  access: READ,
  headers: CONDITION_HEADERS,
  answers: ARTIFACT_BYTES_ANSWERS,
  errors: READ_ARTIFACT_ERRORS,
  handle: async (exchange, { params }) => {
    const artifact = await ownArtifact(exchange, params.artifact_name);
    return artifactBytes(exchange, exchange.principal.tenant, artifact);
  },
});

const writeArtifact = defineRoute({
  method: 'PUT',
  path: '/v1/artifacts/{artifact_name}/content',
  operationId: 'writeArtifact',
  summary: 'Upload an artifact; it replaces the one of its name when all of its bytes have come',
  access: WRITE,
  headers: { 'Content-Digest': '`sha-256=:…:` of the bytes: others are refused.' },
  streamed: { mediaType: BYTES_MEDIA_TYPE },
  answers: { 201: artifactAnswer('The artifact') },
  errors: [...KEEP_ERRORS, 'not_found', 'digest_mismatch'],
  handle: async (exchange, { params }) => {
    const { headers, body } = exchange.request;
    const artifact = await keep(exchange, {
      name: artifactNameOf(params.artifact_name),
      maxBytes: uploadBytesOf(headers),
      source: null,
      content: { body, sha256: sha256Of(headers) },
    });
    return reply(201, artifact);
  },
});

const deleteArtifact = defineRoute({
  method: 'DELETE',
  path: '/v1/artifacts/{artifact_name}',
  operationId: 'deleteArtifact',
  summary: 'Remove an artifact; the second time it is not found',
  access: WRITE,
  answers: { 204: { description: 'The artifact is gone' } },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const { tenant, subject } = callerOf(exchange);
    const name = artifactNameOf(params.artifact_name);
    unwrap(await artifactCalls(exchange.env, tenant)((stub) => stub.remove(subject, name), UNSAFE));
    return emptyReply();
  },
});

const createArtifactUrl = defineRoute({
  method: 'POST',
  path: '/v1/artifacts/{artifact_name}/url',
  operationId: 'createArtifactUrl',
  summary:
    'An address that needs no token, for one method on this artifact: for as long as it says, or for one upload',
  // Whoever may not write gets no address that writes.
  access: { kind: 'tenant', anyScope: ['sessions:read', 'sessions:write'] },
  body: CreateArtifactUrlSchema,
  answers: { 201: { description: 'The address', content: { [JSON_MEDIA_TYPE]: ArtifactUrlSchema } } },
  errors: ['not_found', 'insufficient_scope'],
  handle: async (exchange, { params, body }) => {
    const { method, max_bytes, expires_in_s } = body;
    requireScopes(
      exchange.principal,
      [method === 'GET' ? 'sessions:read' : 'sessions:write'],
      exchange.configuration,
    );
    const { tenant, subject, tokenId, apiKeyId } = exchange.principal;
    const name = artifactNameOf(params.artifact_name);
    const owner = { tenant, sub: subject, name, token: tokenId, key: apiKeyId };
    const grant =
      max_bytes === undefined
        ? { ...owner, method: 'GET', artifact: (await ownArtifact(exchange, name)).artifact_id }
        : { ...owner, method: 'PUT', artifact: newId('art'), max_bytes };
    const { token, expiresAtMs } = await signArtifactGrant(
      ArtifactGrantSchema.parse(grant),
      expires_in_s,
      exchange.configuration,
    );
    return reply(201, {
      url: `${exchange.configuration.origin}/v1/artifact-urls/${token}`,
      method,
      expires_at: new Date(expiresAtMs).toISOString(),
      max_bytes: max_bytes ?? null,
    });
  },
});

const filesFrom = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/files-from',
  operationId: 'filesFrom',
  summary: 'Write an artifact as a file of the session, verified on the way; it replaces the file at once',
  access: WRITE,
  body: FilesFromSchema,
  answers: WRITTEN_ANSWERS,
  errors: [...FILE_WRITE_ERRORS, 'storage_unavailable'],
  handle: async (exchange, { params, body }) => {
    const session = await ownSession(exchange, params.session_id);
    const path = pathOfText(body.path, 'body.path');
    // First the session: of one that is not there nothing else is said.
    unwrap(await session.call((stub) => stub.describe(session.caller), SAFE));
    const artifact = await ownArtifact(exchange, body.artifact);
    const bytes = await wholeArtifact(exchange, session.caller.tenant, artifact);
    const written = await writeTransfer(
      session,
      {
        operation: 'write',
        path: path.base64,
        if_match: null,
        if_none_match: null,
        mode: body.mode === undefined ? null : Number.parseInt(body.mode, 8),
        sha256: artifact.sha256,
      },
      bytes,
    );
    return writtenReply(written);
  },
});

export const artifactRoutes = [
  keepFile,
  filesFrom,
  listArtifacts,
  getArtifact,
  readArtifact,
  writeArtifact,
  deleteArtifact,
  createArtifactUrl,
];
