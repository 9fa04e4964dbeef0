/** Files and folders as streams: what is there is said first, then the bytes come or go under the guest's credit. */
import { fail, type GuestFailure, type GuestResult, succeed } from './failure.ts';
import {
  FILE_REQUEST,
  type FileReply,
  type FileStatus,
  type GuestPath,
  parseStatus,
  parseU64,
  STATUS_BYTES,
} from './file-messages.ts';
import type { FileConversation, FileServer, PathRequest } from './file-server.ts';
import { u32, u64 } from './integers.ts';

/** One message of an upload; the guest takes at most twice of it. */
const DATA_BYTES = 128 * 1024;
const NO_MODE = 0xffff_ffff;
const NO_HEAD = new Uint8Array(0);

export type OnBytes = (bytes: Uint8Array) => Promise<void>;

export interface Piece {
  offset: number;
  length: number;
}

interface Content {
  content: AsyncIterable<Uint8Array>;
}

/** Asks what is wanted once the file is open; `undefined` for nothing of it. */
export function readFile(
  server: FileServer,
  request: PathRequest & { choose: (status: FileStatus) => Piece | undefined; onBytes: OnBytes },
): Promise<GuestResult<{ bytes: number }>> {
  return server.converse(asked(FILE_REQUEST.open, NO_HEAD, request), async (conversation) => {
    const opened = await begun(conversation);
    if (!opened.ok) return opened;
    const status = opened.value.length === STATUS_BYTES ? parseStatus(opened.value, 0) : undefined;
    if (status === undefined) return conversation.refuse();
    const piece = request.choose(status);
    if (piece === undefined) {
      const ended = await abort(conversation);
      return ended.ok ? succeed({ bytes: 0 }) : ended;
    }
    void conversation.send(FILE_REQUEST.piece, Buffer.concat([u64(piece.offset), u64(piece.length)]));
    const received = await receive(conversation, request.onBytes, piece.length);
    if (!received.ok) return received;
    const { bytes, body } = received.value;
    if (body.length !== 9 || parseU64(body, 0) !== bytes) return conversation.refuse();
    return succeed({ bytes });
  });
}

export interface Replaced {
  bytes: number;
  created: boolean;
  status: FileStatus;
}

/**
 * Replaces a file when all of its new content has come, and leaves it as it was otherwise. `accept` sees what is there,
 * null for nothing; where `guarded`, only that is replaced.
 */
export function replaceFile(
  server: FileServer,
  request: PathRequest &
    Content & {
      mode: number | null;
      guarded: boolean;
      accept: (before: FileStatus | null) => boolean;
    },
): Promise<GuestResult<Replaced | undefined>> {
  const head = Buffer.concat([u32(request.mode ?? NO_MODE), Buffer.from([request.guarded ? 1 : 0])]);
  return server.converse(asked(FILE_REQUEST.replace, head, request), async (conversation) => {
    const opened = await begun(conversation);
    if (!opened.ok) return opened;
    const isThere = opened.value[0] === 1;
    const before = isThere ? parseStatus(opened.value, 1) : null;
    if (opened.value.length !== 1 + STATUS_BYTES || before === undefined) return conversation.refuse();
    if (!request.accept(before)) {
      const ended = await abort(conversation);
      return ended.ok ? succeed(undefined) : ended;
    }
    const done = await send(conversation, request.content);
    if (!done.ok) return done;
    const bytes = parseU64(done.value, 0);
    const status = done.value.length === 9 + STATUS_BYTES ? parseStatus(done.value, 9) : undefined;
    if (bytes === undefined || status === undefined) return conversation.refuse();
    return succeed({ bytes, created: done.value[8] === 1, status });
  });
}

/** Everything below a folder as a tar archive. */
export function archiveFolder(
  server: FileServer,
  request: PathRequest & { onBegin: () => void; onBytes: OnBytes },
): Promise<GuestResult<{ bytes: number; entries: number }>> {
  return server.converse(asked(FILE_REQUEST.archive, NO_HEAD, request), async (conversation) => {
    const opened = await begun(conversation);
    if (!opened.ok) return opened;
    request.onBegin();
    const received = await receive(conversation, request.onBytes);
    if (!received.ok) return received;
    const entries = parseU64(received.value.body, 8);
    if (entries === undefined) return conversation.refuse();
    return succeed({ bytes: received.value.bytes, entries });
  });
}

/** Extracts a tar archive into a folder, which is made where it is missing. */
export function extractArchive(
  server: FileServer,
  request: PathRequest & Content & { onBegin: () => void },
): Promise<GuestResult<{ entries: number }>> {
  return server.converse(asked(FILE_REQUEST.extract, NO_HEAD, request), async (conversation) => {
    const opened = await begun(conversation);
    if (!opened.ok) return opened;
    request.onBegin();
    const done = await send(conversation, request.content);
    if (!done.ok) return done;
    const entries = parseU64(done.value, 0);
    return entries === undefined ? conversation.refuse() : succeed({ entries });
  });
}

export interface FolderChange {
  /** Bits as of inotify. */
  mask: number;
  name: Uint8Array;
}

/** Tells changes directly in a folder until the signal aborts. */
export function watchFolder(
  server: FileServer,
  request: PathRequest & {
    onBegin: () => void;
    onChanges: (changes: FolderChange[]) => Promise<void>;
    signal: AbortSignal;
  },
): Promise<GuestResult<void>> {
  return server.converse(asked(FILE_REQUEST.watch, NO_HEAD, request), async (conversation) => {
    const opened = await begun(conversation);
    if (!opened.ok) return opened;
    request.onBegin();
    const stop = () => void conversation.send(FILE_REQUEST.abort);
    if (request.signal.aborted) stop();
    else request.signal.addEventListener('abort', stop, { once: true });
    let isMalformed = false;
    const received = await receive(conversation, async (bytes) => {
      const changes = parseChanges(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
      isMalformed = changes === undefined;
      if (changes === undefined) throw new Error('not the protocol');
      if (!request.signal.aborted) await request.onChanges(changes);
    });
    request.signal.removeEventListener('abort', stop);
    if (isMalformed) return conversation.refuse();
    return received.ok ? succeed(undefined) : received;
  });
}

const CHANGE_HEAD_BYTES = 6;

/** u32 mask | u16 length | name, one after the other. */
export function parseChanges(bytes: Buffer): FolderChange[] | undefined {
  const changes: FolderChange[] = [];
  for (let at = 0; at < bytes.length; ) {
    if (bytes.length < at + CHANGE_HEAD_BYTES) return undefined;
    const end = at + CHANGE_HEAD_BYTES + bytes.readUInt16BE(at + 4);
    if (end > bytes.length) return undefined;
    changes.push({ mask: bytes.readUInt32BE(at), name: bytes.subarray(at + CHANGE_HEAD_BYTES, end) });
    at = end;
  }
  return changes;
}

function asked(kind: number, head: Uint8Array, { cwd, path }: PathRequest) {
  const paths: GuestPath[] = [cwd, path];
  return { kind, head, paths };
}

/** The first answer: that it goes on, with what is known, or why it does not. */
async function begun(conversation: FileConversation): Promise<GuestResult<Buffer>> {
  const reply = await conversation.next();
  if (!reply.ok) return reply;
  if (reply.value.kind === 'failed') return failed(reply.value);
  return reply.value.kind === 'stat' ? succeed(reply.value.body) : conversation.refuse();
}

/** What was begun is not wanted; the server says so in its own words, and is ready for the next request. */
async function abort(conversation: FileConversation): Promise<GuestResult<void>> {
  void conversation.send(FILE_REQUEST.abort);
  const reply = await conversation.next();
  if (!reply.ok) return reply;
  return reply.value.kind === 'failed' ? succeed(undefined) : conversation.refuse();
}

async function receive(
  conversation: FileConversation,
  onBytes: OnBytes,
  maxBytes = Number.MAX_SAFE_INTEGER,
): Promise<GuestResult<{ bytes: number; body: Buffer }>> {
  let bytes = 0;
  for (;;) {
    const reply = await conversation.next();
    if (!reply.ok) return reply;
    if (reply.value.kind === 'failed') return failed(reply.value);
    if (reply.value.kind === 'stat') return conversation.refuse();
    if (reply.value.kind === 'done') return succeed({ bytes, body: reply.value.body });
    bytes += reply.value.bytes.length;
    if (bytes > maxBytes) return conversation.refuse();
    try {
      await onBytes(reply.value.bytes);
    } catch {
      // The rest is on its way and nobody takes it: another server is started faster than this one is emptied.
      conversation.refuse();
      return fail('file', 'nobody reads any more', 'ECANCELED');
    }
  }
}

/** Sends the content to its end, or until it fails or is refused; gives the body of the last answer. */
async function send(
  conversation: FileConversation,
  content: AsyncIterable<Uint8Array>,
): Promise<GuestResult<Buffer>> {
  const ended = await sendAll(conversation, content);
  const kind = ended === undefined ? FILE_REQUEST.commit : FILE_REQUEST.abort;
  const sent = await conversation.send(kind);
  if (!sent.ok) return sent;
  const reply = await conversation.next();
  if (!reply.ok) return reply;
  if (reply.value.kind === 'failed')
    return ended === undefined ? failed(reply.value) : { ok: false, failure: ended };
  return reply.value.kind === 'done' && ended === undefined
    ? succeed(reply.value.body)
    : conversation.refuse();
}

async function sendAll(
  conversation: FileConversation,
  content: AsyncIterable<Uint8Array>,
): Promise<GuestFailure | undefined> {
  try {
    for await (const part of content) {
      for (let at = 0; at < part.byteLength; at += DATA_BYTES) {
        if (conversation.hasReply) return undefined;
        const sent = await conversation.send(FILE_REQUEST.data, part.subarray(at, at + DATA_BYTES));
        if (!sent.ok) return sent.failure;
      }
    }
  } catch (error: unknown) {
    const message = error instanceof Error ? error.message : 'the content could not be read';
    return { reason: 'file', message, errno: 'ECANCELED' };
  }
  return undefined;
}

function failed(reply: Extract<FileReply, { kind: 'failed' }>): GuestResult<never> {
  if (reply.name.length === 0) return { ok: false, failure: reply.failure };
  const name = JSON.stringify(new TextDecoder().decode(reply.name));
  return { ok: false, failure: { ...reply.failure, message: `${name}: ${reply.failure.message}` } };
}
