/** Files of a session as bytes: read, written, listed, watched and deleted, and the workspace as an archive. */
import * as z from 'zod';
import { type ErrorCode, failure } from '../../shared/errors.ts';
import { FileListingSchema, MAX_LIST_LIMIT, type TransferResult } from '../../shared/transfer.ts';
import { StreamTextSchema } from '../calls/event-stream-text.ts';
import { type OwnSession, ownSession } from '../calls/own-session.ts';
import { readTransfer, TRANSFER_ERRORS, writeTransfer } from '../calls/session-transfer.ts';
import {
  conditionsOf,
  contentHeaders,
  dispositionOf,
  factHeaders,
  ifRangeOf,
  rangeOf,
  sha256Of,
} from '../content/file-headers.ts';
import { type FilePath, filePathOf, pathOfText } from '../content/file-path.ts';
import { BYTES_MEDIA_TYPE, EVENT_STREAM_MEDIA_TYPE, JSON_MEDIA_TYPE } from '../middleware/body.ts';
import { Refusal } from '../middleware/refusal.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';

const FILE_PATH = '/v1/sessions/{session_id}/files/{path}';
const ARCHIVE_PATH = '/v1/sessions/{session_id}/archive';
const TAR_MEDIA_TYPE = 'application/x-tar';

const SHARED_ERRORS = [
  'is_directory',
  'not_a_directory',
  'permission_denied',
  'file_refused',
  ...TRANSFER_ERRORS,
] as const satisfies readonly ErrorCode[];

const Switch = z.enum(['', 'true']).optional();
const Name = z.string().max(4_096).optional();

const readFile = defineRoute({
  method: 'GET',
  path: FILE_PATH,
  operationId: 'readFile',
  summary:
    'The bytes of a file; with `list` the entries of a folder, with `watch` its changes as they happen. `path` may have slashes, and any byte percent-encoded; it is relative to /workspace unless it begins with a slash',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  query: z.strictObject({
    list: Switch.describe('The entries of the folder instead.'),
    watch: Switch.describe('Changes directly in the folder as events, until the client goes.'),
    cursor: z
      .string()
      .regex(/^\d{1,9}$/)
      .optional()
      .describe('`next_cursor` of the page before.'),
    limit: z.coerce
      .number()
      .int()
      .min(1)
      .max(MAX_LIST_LIMIT)
      .default(MAX_LIST_LIMIT)
      .describe('Entries of a page.'),
  }),
  headers: {
    Range: 'One range of bytes; several are answered with the whole file.',
    'If-Range': 'The range counts only while the file has this `ETag`.',
    'If-Match': 'Only while the file has one of these.',
    'If-None-Match': 'Only unless the file has one of these.',
  },
  answers: {
    200: {
      description: 'The file, a page of the folder, or its changes',
      content: {
        [BYTES_MEDIA_TYPE]: z.string(),
        [JSON_MEDIA_TYPE]: FileListingSchema,
        [EVENT_STREAM_MEDIA_TYPE]: StreamTextSchema,
        '*/*': z.string(),
      },
      headers: ['ETag', 'Last-Modified', 'Accept-Ranges', 'Content-Disposition'],
    },
    206: {
      description: 'The range of it',
      content: { [BYTES_MEDIA_TYPE]: z.string(), '*/*': z.string() },
      headers: ['Content-Range', 'ETag', 'Last-Modified'],
    },
    304: { description: 'The file still has that `ETag`', headers: ['ETag'] },
  },
  errors: [...SHARED_ERRORS, 'not_a_regular_file', 'precondition_failed', 'range_not_satisfiable'],
  handle: async (exchange, { params, query }) => {
    const session = await ownSession(exchange, params.session_id);
    const path = filePathOf(exchange.request.url);
    if (query.list !== undefined) return listFolder(session, path, query);
    if (query.watch !== undefined) return watchFolder(session, path);
    return readBytes(session, path, exchange.request);
  },
});

async function readBytes(session: OwnSession, path: FilePath, request: Request): Promise<Response> {
  const { headers } = request;
  const { head, body } = await readTransfer(session, {
    operation: 'read',
    path: path.base64,
    ...conditionsOf(headers),
    range: rangeOf(headers),
    if_range: ifRangeOf(headers),
    head: request.method === 'HEAD',
  });
  if (head.answer === 'not_modified') {
    return new Response(null, { status: 304, headers: head.facts === null ? {} : factHeaders(head.facts) });
  }
  const status = head.answer === 'part' ? 206 : 200;
  return new Response(body, { status, headers: contentHeaders(head, path.bytes) });
}

async function listFolder(
  session: OwnSession,
  path: FilePath,
  query: { cursor?: string | undefined; limit: number },
): Promise<Response> {
  const { body } = await readTransfer(session, {
    operation: 'list',
    path: path.base64,
    cursor: Number(query.cursor ?? 0),
    limit: query.limit,
  });
  return new Response(body, { headers: { 'Content-Type': JSON_MEDIA_TYPE } });
}

async function watchFolder(session: OwnSession, path: FilePath): Promise<Response> {
  const { body } = await readTransfer(session, { operation: 'watch', path: path.base64 });
  return new Response(body, {
    headers: { 'Content-Type': EVENT_STREAM_MEDIA_TYPE, 'X-Accel-Buffering': 'no' },
  });
}

/** What may become of writing a file from its beginning. */
export const FILE_WRITE_ERRORS = [
  ...SHARED_ERRORS,
  'not_a_regular_file',
  'no_space',
  'payload_too_large',
  'digest_mismatch',
] as const satisfies readonly ErrorCode[];

const WrittenSchema = z.object({
  size: z.int(),
  sha256: z.string(),
  created: z.boolean(),
  etag: z.string(),
});

/** Of writing a file from its beginning. */
export const WRITTEN_ANSWERS = {
  200: {
    description: 'The file was replaced',
    content: { [JSON_MEDIA_TYPE]: WrittenSchema },
    headers: ['ETag'],
  },
  201: {
    description: 'The file was made',
    content: { [JSON_MEDIA_TYPE]: WrittenSchema },
    headers: ['ETag'],
  },
} as const;

const writeFile = defineRoute({
  method: 'PUT',
  path: FILE_PATH,
  operationId: 'writeFile',
  summary:
    'Replace a file when all of its bytes have come, or make it, and the folders above it; one that is cut off changes nothing',
  access: { kind: 'tenant', scopes: ['sessions:write'] },
  query: z.strictObject({
    mode: z
      .string()
      .regex(/^0?[0-7]{1,3}$/)
      .optional()
      .describe('Permissions in octal, such as 0755.'),
  }),
  headers: {
    'If-Match': 'Only while the file has one of these; `*` for any file.',
    'If-None-Match': '`*`: only where there is no file.',
    'Content-Digest': '`sha-256=:…:` of the bytes: others are refused.',
    'Repr-Digest': 'The same.',
  },
  streamed: { mediaType: BYTES_MEDIA_TYPE },
  answers: WRITTEN_ANSWERS,
  errors: [...FILE_WRITE_ERRORS, 'precondition_failed'],
  handle: async (exchange, { params, query }) => {
    const { headers, body, url } = exchange.request;
    refuseEncoded(headers);
    const session = await ownSession(exchange, params.session_id);
    const path = filePathOf(url);
    const written = await writeTransfer(
      session,
      {
        operation: 'write',
        path: path.base64,
        ...conditionsOf(headers),
        mode: query.mode === undefined ? null : Number.parseInt(query.mode, 8),
        sha256: sha256Of(headers),
      },
      body,
    );
    return writtenReply(written);
  },
});

export function writtenReply({ created, bytes, sha256, facts }: TransferResult): Response {
  const etag = facts?.etag ?? '';
  const answer: z.infer<typeof WrittenSchema> = { size: bytes, sha256: sha256 ?? '', created, etag };
  return reply(created ? 201 : 200, answer, facts === null ? {} : factHeaders(facts));
}

const deleteFile = defineRoute({
  method: 'DELETE',
  path: FILE_PATH,
  operationId: 'deleteFile',
  summary: 'Delete a file, a link or an empty folder; with `recursive` a folder with everything in it',
  access: { kind: 'tenant', scopes: ['sessions:write'] },
  query: z.strictObject({ recursive: Switch.describe('A folder with everything in it.') }),
  answers: { 204: { description: 'It is gone' } },
  errors: [...SHARED_ERRORS, 'directory_not_empty'],
  handle: async (exchange, { params, query }) => {
    const session = await ownSession(exchange, params.session_id);
    const path = filePathOf(exchange.request.url);
    const recursive = query.recursive !== undefined;
    await writeTransfer(session, { operation: 'delete', path: path.base64, recursive }, null);
    return emptyReply();
  },
});

const readArchive = defineRoute({
  method: 'GET',
  path: ARCHIVE_PATH,
  operationId: 'readArchive',
  summary: 'The workspace, or the folder `path`, as a tar archive: modes, times and links as they are',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  query: z.strictObject({ path: Name.describe('A folder below /workspace, or an absolute one.') }),
  answers: {
    200: {
      description: 'The archive',
      content: { [TAR_MEDIA_TYPE]: z.string() },
      headers: ['Content-Disposition'],
    },
  },
  errors: SHARED_ERRORS,
  handle: async (exchange, { params, query }) => {
    const session = await ownSession(exchange, params.session_id);
    const path = pathOfText(query.path ?? '', 'query.path');
    const headers = {
      'Content-Type': TAR_MEDIA_TYPE,
      'Content-Disposition': dispositionOf(query.path === undefined ? new Uint8Array(0) : path.bytes, '.tar'),
    };
    // An answer to HEAD needs no archive.
    if (exchange.request.method === 'HEAD') return new Response(null, { headers });
    const { body } = await readTransfer(session, { operation: 'archive', path: path.base64 });
    return new Response(body, { headers });
  },
});

const ExtractedSchema = z.object({ entries: z.int(), bytes: z.int() });

const writeArchive = defineRoute({
  method: 'PUT',
  path: ARCHIVE_PATH,
  operationId: 'writeArchive',
  summary:
    'Extract a tar archive into the workspace, or into the folder `path`, which is made where it is missing; nothing is made outside of it',
  access: { kind: 'tenant', scopes: ['sessions:write'] },
  query: z.strictObject({ path: Name.describe('A folder below /workspace, or an absolute one.') }),
  streamed: { mediaType: TAR_MEDIA_TYPE },
  answers: {
    200: { description: 'All of it was extracted', content: { [JSON_MEDIA_TYPE]: ExtractedSchema } },
  },
  errors: [...SHARED_ERRORS, 'archive_refused', 'no_space', 'payload_too_large', 'not_a_regular_file'],
  handle: async (exchange, { params, query }) => {
    refuseEncoded(exchange.request.headers);
    const session = await ownSession(exchange, params.session_id);
    const path = pathOfText(query.path ?? '', 'query.path');
    const { entries, bytes } = await writeTransfer(
      session,
      { operation: 'extract', path: path.base64 },
      exchange.request.body,
    );
    return reply(200, { entries, bytes });
  },
});

function refuseEncoded(headers: Headers): void {
  if (!headers.has('Content-Encoding')) return;
  throw new Refusal(
    failure('unsupported_media_type', 'bodies are taken as they are, without Content-Encoding'),
  );
}

export const fileRoutes = [readFile, writeFile, deleteFile, readArchive, writeArchive];
