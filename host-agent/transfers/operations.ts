/** What each file operation does with the sandbox, the bytes that come and the bytes that go. */
import { utf8 } from '../../shared/encoding.ts';
import { type Failure, failure, success } from '../../shared/errors.ts';
import { judgeRead, mayWrite, type ReadVerdict } from '../../shared/preconditions.ts';
import type { FileChange, FileFacts, FileListing, FileRequest } from '../../shared/transfer.ts';
import { nameOf } from '../sandbox/files/changes.ts';
import type { ListedFile } from '../sandbox/files/port.ts';
import { NOTHING, type OperationEnd, type OperationPlace, STREAM } from './operation.ts';
import type { Outgoing } from './outgoing.ts';

type RequestOf<Operation extends FileRequest['operation']> = Extract<FileRequest, { operation: Operation }>;

export function perform(request: FileRequest, place: OperationPlace): Promise<OperationEnd> {
  switch (request.operation) {
    case 'read':
      return read(request, place);
    case 'write':
      return write(request, place);
    case 'list':
      return list(request, place);
    case 'delete':
      return remove(request, place);
    case 'archive':
      return archive(place);
    case 'extract':
      return extract(place);
    case 'watch':
      return watch(place);
  }
}

async function read(request: RequestOf<'read'>, place: OperationPlace): Promise<OperationEnd> {
  const { files, path, signal, head, outgoing } = place;
  let seen: { facts: FileFacts; verdict: ReadVerdict } | undefined;
  const done = await files.read({
    path,
    signal,
    choose: (facts) => {
      const verdict = judgeRead(request, facts);
      seen = { facts, verdict };
      if (verdict.answer === 'precondition_failed' || verdict.answer === 'range_not_satisfiable') return;
      const piece = 'length' in verdict ? verdict : { offset: 0, length: 0 };
      head({ answer: verdict.answer, facts, offset: piece.offset, length: piece.length });
      return verdict.answer === 'not_modified' || request.head || piece.length === 0 ? undefined : piece;
    },
    onBytes: (bytes) => outgoing.push(bytes),
  });
  if (!done.ok || seen === undefined) return done.ok ? failure('transfer_failed', shown(path)) : done;
  const { answer } = seen.verdict;
  if (answer === 'precondition_failed') return failure(answer, `${shown(path)}: the file is another one`);
  if (answer === 'range_not_satisfiable') {
    const { size } = seen.facts;
    return { ...failure(answer, `${shown(path)}: the file has ${size} bytes`), size };
  }
  return success({ ...NOTHING, bytes: done.value.bytes });
}

async function write(request: RequestOf<'write'>, place: OperationPlace): Promise<OperationEnd> {
  const { files, path, signal, head, incoming } = place;
  let isRefused = false;
  let fault: unknown;
  const written = await files.write({
    path,
    signal,
    mode: request.mode,
    guarded: request.if_match !== null || request.if_none_match !== null,
    accept: (before) => {
      isRefused = !mayWrite(request, before);
      if (!isRefused) head({ ...STREAM, facts: before });
      return !isRefused;
    },
    content: watched(incoming.content(request.sha256), (error) => {
      fault = error;
    }),
  });
  if (isRefused)
    return failure('precondition_failed', `${shown(path)}: what is there is not as the condition says`);
  if (fault instanceof Error && fault.name === 'DigestMismatch')
    return failure('digest_mismatch', `${shown(path)}: ${fault.message}`);
  if (!written.ok) return written;
  if (written.value === null) return failure('transfer_failed', shown(path));
  const { bytes, created, facts } = written.value;
  return success({ ...NOTHING, bytes, created, facts, sha256: incoming.sha256 });
}

async function list(request: RequestOf<'list'>, place: OperationPlace): Promise<OperationEnd> {
  const { files, path, signal, head, outgoing } = place;
  const { cursor, limit } = request;
  const listed = await files.list({ path, signal, cursor, limit });
  if (!listed.ok) return listed;
  head(STREAM);
  const { entries, nextCursor } = listed.value;
  const listing: FileListing = {
    entries: entries.map(entryOf),
    next_cursor: nextCursor === null ? null : String(nextCursor),
  };
  return sent(outgoing, utf8(JSON.stringify(listing)), path);
}

function entryOf({ name, type, size, mode, modified_ms, etag }: ListedFile): FileListing['entries'][number] {
  const modified = new Date(modified_ms);
  return {
    ...nameOf(name),
    type,
    size,
    mode: mode.toString(8).padStart(4, '0'),
    modified_at: Number.isNaN(modified.getTime()) ? null : modified.toISOString(),
    etag,
  };
}

async function remove(request: RequestOf<'delete'>, place: OperationPlace): Promise<OperationEnd> {
  const { files, path, signal } = place;
  const deleted = await files.delete({ path, signal, recursive: request.recursive });
  return deleted.ok ? success({ ...NOTHING, entries: deleted.value.deleted }) : deleted;
}

async function archive(place: OperationPlace): Promise<OperationEnd> {
  const { files, path, signal, head, outgoing, maxArchiveBytes } = place;
  const tooLong = new AbortController();
  const done = await files.archive({
    path,
    signal: AbortSignal.any([signal, tooLong.signal]),
    onBegin: () => head(STREAM),
    onBytes: async (bytes) => {
      if (outgoing.bytes + bytes.length > maxArchiveBytes) tooLong.abort();
      else await outgoing.push(bytes);
    },
  });
  if (tooLong.signal.aborted) {
    const detail = `an archive of at most ${maxArchiveBytes} bytes was expected, sparse files with their holes`;
    return failure('archive_refused', `${shown(path)}: ${detail}`);
  }
  return done.ok ? success({ ...NOTHING, ...done.value }) : done;
}

async function extract({ files, path, signal, head, incoming }: OperationPlace): Promise<OperationEnd> {
  const done = await files.extract({
    path,
    signal,
    onBegin: () => head(STREAM),
    content: incoming.content(null),
  });
  if (!done.ok) return done;
  return success({ ...NOTHING, bytes: incoming.bytes, entries: done.value.entries, sha256: incoming.sha256 });
}

/** Changes travel as lines of JSON. */
async function watch({ files, path, signal, head, outgoing }: OperationPlace): Promise<OperationEnd> {
  const done = await files.watch({
    path,
    signal,
    onBegin: () => head(STREAM),
    onChanges: (changes) => outgoing.push(linesOf(changes)),
  });
  return done.ok ? success({ ...NOTHING, bytes: outgoing.bytes }) : done;
}

function linesOf(changes: readonly FileChange[]): Uint8Array {
  return utf8(changes.map((change) => `${JSON.stringify(change)}\n`).join(''));
}

async function sent(outgoing: Outgoing, bytes: Uint8Array, path: Uint8Array): Promise<OperationEnd> {
  try {
    await outgoing.push(bytes);
    return success({ ...NOTHING, bytes: bytes.length });
  } catch {
    return failure('transfer_failed', shown(path));
  }
}

async function* watched(
  content: AsyncIterable<Uint8Array>,
  onFault: (error: unknown) => void,
): AsyncIterable<Uint8Array> {
  try {
    yield* content;
  } catch (error: unknown) {
    onFault(error);
    throw error;
  }
}

/** A path as a caller can read it. */
export function shown(path: Uint8Array): string {
  return JSON.stringify(new TextDecoder().decode(path)).slice(0, 4_200);
}

export function cutShort(path: Uint8Array, why: string): Failure {
  return failure('transfer_failed', `${shown(path)}: ${why}`);
}
