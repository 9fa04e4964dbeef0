/** Messages to and from the file server of a sandbox: u32 length | u8 kind | body. Answers are untrusted bytes. */
import { getSystemErrorName } from 'node:util';
import { fail, type GuestFailure, type GuestResult, succeed } from './failure.ts';
import { lengthPrefixed } from './length-prefixed.ts';

export const FILE_REQUEST = {
  read: 1,
  write: 2,
  list: 3,
  delete: 4,
  move: 5,
  stat: 6,
  data: 7,
  commit: 8,
  abort: 9,
  open: 10,
  piece: 11,
  replace: 12,
  archive: 13,
  extract: 14,
  watch: 15,
} as const;
export const MAX_FILE_BODY_BYTES = 256 * 1024;
export const MAX_LIST_ENTRIES = 1000;
const NO_CURSOR = 0xffff_ffff;
/** What the server says beyond the kernel's error numbers. */
const OWN_ERRORS = new Map([
  [10001, { errno: 'not_regular', message: 'not a regular file' }],
  [10002, { errno: 'changed', message: 'the file was changed meanwhile' }],
  [10003, { errno: 'outside', message: 'it leads out of the folder' }],
  [10004, { errno: 'no_archive', message: 'not a tar archive, or one that ends too early' }],
]);
const MAX_FAILURE_NAME_BYTES = 4096;
export const STATUS_BYTES = 41;

export type GuestPath = string | Uint8Array;
export type FileType = 'file' | 'directory' | 'symlink' | 'fifo' | 'socket' | 'device';

export interface FileStatus {
  readonly type: FileType;
  readonly size: number;
  readonly mode: number;
  readonly mtimeMs: number;
  /** Of inode, size and time of change: names the content. */
  readonly version: string;
}

/** `link`: the path named a symbolic link; the rest then says what it leads to, or the link itself if that is nothing. */
export interface FileStat extends FileStatus {
  readonly link: boolean;
}

export interface FileEntry extends FileStatus {
  /** In the bytes of the guest's kernel: a name need not be UTF-8. */
  readonly name: Uint8Array;
}

export type FileReply =
  | { readonly kind: 'done'; readonly body: Buffer }
  /** `name`: of the entry that failed, where the request was about many. */
  | { readonly kind: 'failed'; readonly failure: GuestFailure; readonly name: Uint8Array }
  | { readonly kind: 'data'; readonly bytes: Buffer }
  | { readonly kind: 'stat'; readonly body: Buffer };

const TYPES = new Map<number, FileType>([
  [1, 'file'],
  [2, 'directory'],
  [3, 'symlink'],
  [4, 'fifo'],
  [5, 'socket'],
  [6, 'device'],
]);

export function fileRequest(
  kind: number,
  head: Uint8Array,
  paths: readonly GuestPath[],
): GuestResult<Buffer> {
  const texts = paths.map((path) => Buffer.from(path));
  if (texts.some((text) => text.length === 0 || text.includes(0)))
    return fail('file', 'an empty path, or one with a NUL byte', 'EINVAL');
  const strings = texts.map((text) => Buffer.concat([text, Buffer.alloc(1)]));
  const message = Buffer.concat([Buffer.from([kind]), head, ...strings]);
  if (message.length > MAX_FILE_BODY_BYTES) return fail('file', 'the path is too long', 'ENAMETOOLONG');
  return succeed(lengthPrefixed(message));
}

/** A message that is no request of its own. */
export function fileMessage(kind: number, body: Uint8Array = new Uint8Array(0)): Buffer {
  const message = Buffer.allocUnsafe(5 + body.byteLength);
  message.writeUInt32BE(1 + body.byteLength, 0);
  message.writeUInt8(kind, 4);
  message.set(body, 5);
  return message;
}

function failureOf(code: number): GuestFailure {
  const own = OWN_ERRORS.get(code);
  if (own !== undefined) return { reason: 'file', ...own };
  const errno = code > 0 && code < 134 ? getSystemErrorName(-code) : 'EIO';
  return { reason: 'file', message: errno, errno };
}

export function parseFileReply(message: Buffer): FileReply | undefined {
  const body = message.subarray(1);
  switch (message[0]) {
    case 1:
      return { kind: 'done', body };
    case 2:
      if (body.length < 4 || body.length > 4 + MAX_FAILURE_NAME_BYTES) return undefined;
      return { kind: 'failed', failure: failureOf(body.readUInt32BE(0)), name: body.subarray(4) };
    case 3:
      return { kind: 'data', bytes: body };
    case 4:
      return { kind: 'stat', body };
    default:
      return undefined;
  }
}

/** A guest's file system may answer anything; beyond what a number holds exactly it is cut. */
function safeNumber(value: bigint): number {
  const bound = BigInt(Number.MAX_SAFE_INTEGER);
  if (value > bound) return Number.MAX_SAFE_INTEGER;
  return value < -bound ? -Number.MAX_SAFE_INTEGER : Number(value);
}

export function parseU64(body: Buffer, at: number): number | undefined {
  return body.length >= at + 8 ? safeNumber(body.readBigUInt64BE(at)) : undefined;
}

export function parseStatus(body: Buffer, at: number): FileStatus | undefined {
  if (body.length < at + STATUS_BYTES) return undefined;
  const type = TYPES.get(body.readUInt8(at));
  if (type === undefined) return undefined;
  return {
    type,
    mode: body.readUInt32BE(at + 1) & 0o7777,
    size: safeNumber(body.readBigUInt64BE(at + 5)),
    mtimeMs: safeNumber(body.readBigInt64BE(at + 13)),
    version: versionOf(body, at),
  };
}

function versionOf(body: Buffer, at: number): string {
  const size = body.readBigUInt64BE(at + 5).toString(36);
  const changed = body.readBigUInt64BE(at + 33).toString(36);
  const inode = body.readBigUInt64BE(at + 25).toString(36);
  return `${inode}-${size}-${changed}`;
}

export function parseStat(body: Buffer): FileStat | undefined {
  const status = body.length === STATUS_BYTES + 1 ? parseStatus(body, 0) : undefined;
  return status === undefined ? undefined : { ...status, link: body.readUInt8(STATUS_BYTES) === 1 };
}

export interface FileList {
  readonly entries: FileEntry[];
  readonly nextCursor: number | null;
}

export function parseList(body: Buffer): FileList | undefined {
  if (body.length < 4) return undefined;
  const next = body.readUInt32BE(0);
  const entries: FileEntry[] = [];
  for (let at = 4; at < body.length; ) {
    const status = parseStatus(body, at);
    if (status === undefined || body.length < at + STATUS_BYTES + 2) return undefined;
    const start = at + STATUS_BYTES + 2;
    at = start + body.readUInt16BE(start - 2);
    if (at > body.length || at === start || entries.length >= MAX_LIST_ENTRIES) return undefined;
    entries.push({ name: body.subarray(start, at), ...status });
  }
  entries.sort((a, b) => Buffer.compare(a.name, b.name));
  return { entries, nextCursor: next === NO_CURSOR ? null : next };
}
