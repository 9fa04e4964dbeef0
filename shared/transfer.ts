/**
 * What moves beside the executions of a session: its files, and the bytes of its terminals and background processes. What
 * the edge asks of a host by a grant, and the frames that carry bytes. They are not numbered and never sent again: a transfer that loses its link has failed.
 */
import * as z from 'zod';
import { Sha256Schema } from './ids.ts';
import { MAX_PROGRAM_CALLS, ProgramRequestSchema } from './program.ts';

const KIB = 1024;

/** Bytes of one transfer that may be on their way: its own window, so that it cannot hold executions back. */
export const TRANSFER_WINDOW_BYTES = 1024 * KIB;
/** Payload of one frame: small beside the window, so that neither side waits for the other. */
export const TRANSFER_CHUNK_BYTES = 128 * KIB;
/** Transfers of one session at a time; the next is refused with `too_many_transfers`. */
export const MAX_TRANSFERS = 4;
export const MAX_WATCHES = 4;
/** A transfer that moves nothing for this long is ended, so that nobody keeps a place by waiting. */
export const TRANSFER_STALL_MS = 60_000;
/** The longest path that a kernel takes, without its final zero. */
export const MAX_PATH_BYTES = 4_095;
export const MAX_LIST_LIMIT = 1_000;

export const TransferIdSchema = z.string().regex(/^trf_[A-Za-z0-9_-]{22}$/);

/** Base64: a path is bytes, and need not be UTF-8. Relative to the workspace unless it begins with a slash. */
const Path = z
  .base64()
  .min(4)
  .max(Math.ceil((MAX_PATH_BYTES * 4) / 3) + 4);
const EntityTag = z.string().min(2).max(256);
/** Entity tags as they stand in `If-Match` and `If-None-Match`; `*` is any file at all. */
const Tags = z.union([z.literal('*'), z.array(EntityTag).max(32)]).nullable();
export const RangeSchema = z.union([
  z.strictObject({ first: z.int().min(0), last: z.int().min(0).nullable() }),
  z.strictObject({ suffix: z.int().min(0) }),
]);
export type Range = z.infer<typeof RangeSchema>;

const ConditionsSchema = z.strictObject({ if_match: Tags, if_none_match: Tags });
export type Conditions = z.infer<typeof ConditionsSchema>;

/** Payload of a `file` grant. */
export const FileRequestSchema = z.discriminatedUnion('operation', [
  z.strictObject({
    operation: z.literal('read'),
    path: Path,
    ...ConditionsSchema.shape,
    range: RangeSchema.nullable(),
    /** The range counts only while the file has this tag. */
    if_range: EntityTag.nullable(),
    /** Only what a reader would be told before the bytes. */
    head: z.boolean(),
  }),
  z.strictObject({
    operation: z.literal('write'),
    path: Path,
    ...ConditionsSchema.shape,
    mode: z.int().min(0).max(0o777).nullable(),
    /** What the content must hash to, or nothing is replaced. */
    sha256: Sha256Schema.nullable(),
  }),
  z.strictObject({
    operation: z.literal('list'),
    path: Path,
    cursor: z.int().min(0).max(0xffff_fffe),
    limit: z.int().min(1).max(MAX_LIST_LIMIT),
  }),
  z.strictObject({ operation: z.literal('delete'), path: Path, recursive: z.boolean() }),
  z.strictObject({ operation: z.literal('archive'), path: Path }),
  z.strictObject({ operation: z.literal('extract'), path: Path }),
  z.strictObject({ operation: z.literal('watch'), path: Path }),
]);
export type FileRequest = z.infer<typeof FileRequestSchema>;

export function isFileRequest(request: TransferRequest): request is FileRequest {
  return actOf(request.operation) === 'file';
}

export type FileOperation = FileRequest['operation'];

/** What a transfer can be of: each kind has a grant of its own act. */
export const TransferRequestSchema = z.discriminatedUnion('operation', [
  FileRequestSchema,
  ProgramRequestSchema,
]);
export type TransferRequest = z.infer<typeof TransferRequestSchema>;
export type TransferOperation = TransferRequest['operation'];

/** The act that a grant of this operation must have. */
export function actOf(operation: TransferOperation): 'file' | 'terminal' | 'process' {
  if (operation === 'terminal_attach') return 'terminal';
  return operation.startsWith('process_') ? 'process' : 'file';
}

/** Transfers of which so many may be under way at a time; each kind has places of its own. */
export type TransferKind = 'files' | 'watches' | 'programs';
export const MAX_OF_KIND: Record<TransferKind, number> = {
  files: MAX_TRANSFERS,
  watches: MAX_WATCHES,
  programs: MAX_PROGRAM_CALLS,
};

/** Small where a person waits for the answer to a key, which comes behind what is on its way. */
export function windowOf(operation: TransferOperation): number {
  return kindOf(operation) === 'programs' ? TRANSFER_WINDOW_BYTES / 4 : TRANSFER_WINDOW_BYTES;
}

export function kindOf(operation: TransferOperation): TransferKind {
  if (operation === 'watch') return 'watches';
  return actOf(operation) === 'file' ? 'files' : 'programs';
}

/** Which transfer it is of comes with the request, so that the grant names it. */
export const TransferCommandSchema = z.strictObject({
  transfer_id: TransferIdSchema,
  request: TransferRequestSchema,
});

export const FileTypeSchema = z.enum(['file', 'directory', 'symlink', 'fifo', 'socket', 'device']);

export const FileFactsSchema = z.strictObject({
  type: FileTypeSchema,
  size: z.int().min(0),
  mode: z.int().min(0).max(0o7777),
  modified_ms: z.int(),
  /** Names the content: it changes when the file is written or replaced. In quotes, as in the header. */
  etag: EntityTag,
});
export type FileFacts = z.infer<typeof FileFactsSchema>;

/** What is known before the bytes. Of an archive, a listing or a watch there are no facts, and no length. */
export const TransferHeadSchema = z.strictObject({
  answer: z.enum(['whole', 'part', 'not_modified', 'stream']),
  facts: FileFactsSchema.nullable(),
  offset: z.int().min(0),
  length: z.int().min(0).nullable(),
});
export type TransferHead = z.infer<typeof TransferHeadSchema>;

export const TransferResultSchema = z.strictObject({
  bytes: z.int().min(0),
  /** Of the content that was written. */
  sha256: Sha256Schema.nullable(),
  created: z.boolean(),
  facts: FileFactsSchema.nullable(),
  /** Entries that were deleted or extracted. */
  entries: z.int().min(0),
});
export type TransferResult = z.infer<typeof TransferResultSchema>;

const OfTransfer = z.strictObject({ epoch: z.int().min(1), transfer_id: TransferIdSchema });
/** Payload: the bytes from `offset` on. */
const DataSchema = OfTransfer.extend({ type: z.literal('file_data'), offset: z.int().min(0) });
/** How many bytes the receiver has taken in all: so many and a window more may have been sent. */
const TakenSchema = OfTransfer.extend({ type: z.literal('file_taken'), bytes: z.int().min(0) });

/** Edge to host. */
export const TRANSFER_DOWN_SCHEMAS = [
  DataSchema,
  TakenSchema,
  /** All bytes of an upload were sent. */
  OfTransfer.extend({ type: z.literal('file_end'), bytes: z.int().min(0) }),
  /** Nobody wants it any more: an upload leaves what was there before. */
  OfTransfer.extend({ type: z.literal('file_cancel') }),
] as const;

/** Host to edge. */
export const TRANSFER_UP_SCHEMAS = [
  /** The answer begins; of an upload: its bytes may come. */
  OfTransfer.extend({ type: z.literal('file_head'), head: TransferHeadSchema }),
  DataSchema,
  TakenSchema,
  OfTransfer.extend({ type: z.literal('file_done'), result: TransferResultSchema }),
  OfTransfer.extend({
    type: z.literal('file_failed'),
    code: z.string().max(64),
    detail: z.string().max(8_192),
    /** Of a range that lies outside of the file: how long it is. */
    size: z.int().min(0).nullable(),
  }),
] as const;

/** One page of a folder, as the API shows it. A name that is not UTF-8 is given as bytes instead. */
export const FileListingSchema = z.object({
  entries: z.array(
    z.object({
      name: z.string().optional(),
      name_base64: z.base64().optional(),
      type: FileTypeSchema,
      size: z.int(),
      mode: z.string(),
      modified_at: z.iso.datetime().nullable(),
      etag: z.string(),
    }),
  ),
  next_cursor: z.string().nullable(),
});
export type FileListing = z.infer<typeof FileListingSchema>;

/** One change below a watched folder. */
export const FileChangeSchema = z.object({
  change: z.enum(['created', 'modified', 'attributes', 'deleted', 'moved_from', 'moved_to', 'gone', 'lost']),
  name: z.string().optional(),
  name_base64: z.base64().optional(),
  directory: z.boolean(),
});
export type FileChange = z.infer<typeof FileChangeSchema>;
