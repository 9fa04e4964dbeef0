/** The file tool: bytes of the sandbox's files, by a server inside the sandbox that follows links only there. */
import { fromBase64, toBase64, utf8 } from '../../../shared/encoding.ts';
import { MAX_ARGUMENTS_BYTES, MAX_FILE_READ_BYTES } from '../../../shared/limits.ts';
import { type FileArguments, FileArgumentsSchema } from '../../../shared/tool.ts';
import type { CarriedFiles } from '../../guest-link/carried.ts';
import { fail, type GuestFailure, type GuestResult, succeed } from '../../guest-link/failure.ts';
import { type FileEntry, FileServer, type FileStat } from '../../guest-link/file-server.ts';
import { archiveFolder } from '../../guest-link/file-transfer.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import { decodeUtf8, encodeContent } from './file-content.ts';
import { fileFailureEnd } from './file-errors.ts';
import {
  failedEnd,
  guestFailureEnd,
  NO_STDIN,
  type RunningTool,
  type Tool,
  type ToolEnd,
  type ToolPlace,
  toolEnd,
} from './tool.ts';

const SERVER_READY_TIMEOUT_MS = 20_000;

type ArgumentsOf<Operation extends FileArguments['operation']> = Extract<
  FileArguments,
  { operation: Operation }
>;

export class FileTool implements Tool {
  readonly #link: GuestLink;
  readonly #place: ToolPlace;
  #server: Promise<GuestResult<FileServer>> | undefined;
  /** What `#server` resolved to. */
  #ready: FileServer | undefined;

  constructor(link: GuestLink, place: ToolPlace) {
    this.#link = link;
    this.#place = place;
  }

  async warm(): Promise<void> {
    await this.#started();
  }

  run(argumentsJson: unknown): RunningTool {
    const parsed = FileArgumentsSchema.parse(argumentsJson);
    const stopped = Promise.withResolvers<ToolEnd>();
    return {
      ended: Promise.race([this.#perform(parsed), stopped.promise]),
      writeStdin: NO_STDIN,
      stop: async () => {
        stopped.resolve(toolEnd({ status: 'interrupted' }));
        const server = await this.#server;
        this.#forget();
        if (server?.ok === true) await server.value.dispose();
      },
    };
  }

  /** A folder as a tar archive, by the server that calls have: no program is started for it, and none left. */
  async archive({
    path,
    signal,
    onBytes,
  }: {
    path: string;
    signal: AbortSignal;
    onBytes: (bytes: Uint8Array) => Promise<void>;
  }): Promise<GuestResult<{ bytes: number }>> {
    const server = await this.#started();
    if (!server.ok) return server;
    const onBegin = () => undefined;
    const archiving = archiveFolder(server.value, { path, cwd: this.#place.cwd, onBegin, onBytes });
    const late = new Promise<GuestResult<never>>((resolve) => {
      signal.addEventListener('abort', () => resolve(fail('timeout', 'it took too long')), { once: true });
    });
    const archived = await Promise.race([archiving, late]);
    if (!archived.ok) {
      // The rest of the archive may be on its way.
      this.#forget();
      await server.value.dispose();
    }
    return archived;
  }

  /** No server is starting any more when it resolves. */
  async settled(): Promise<void> {
    await this.#server;
  }

  /** How it stands; only while the guest stands still. */
  carry(): CarriedFiles {
    return { server: this.#ready?.idleChannelId ?? null };
  }

  /** Goes on from a checkpoint. */
  adopt(link: GuestLink, carried: CarriedFiles): void {
    const server = carried.server === null ? undefined : FileServer.adopt(link, carried.server);
    if (server === undefined) return;
    this.#ready = server;
    this.#server = Promise.resolve(succeed(server));
  }

  async #perform(parsed: FileArguments): Promise<ToolEnd> {
    const server = await this.#started();
    if (!server.ok) return guestFailureEnd(server.failure);
    return this.#operate(server.value, parsed);
  }

  #operate(server: FileServer, parsed: FileArguments): Promise<ToolEnd> {
    switch (parsed.operation) {
      case 'read':
        return this.#read(server, parsed);
      case 'write':
        return this.#write(server, parsed);
      case 'list':
        return this.#list(server, parsed);
      case 'delete':
        return this.#delete(server, parsed);
      case 'move':
        return this.#move(server, parsed);
      case 'stat':
        return this.#stat(server, parsed);
    }
  }

  async #read(server: FileServer, { path, encoding, offset, length }: ArgumentsOf<'read'>): Promise<ToolEnd> {
    const chunks: Uint8Array[] = [];
    const read = await server.read({
      path,
      cwd: this.#place.cwd,
      offset: offset ?? 0,
      length: Math.min(length ?? MAX_FILE_READ_BYTES, MAX_FILE_READ_BYTES),
      onBytes: (bytes) => {
        chunks.push(bytes);
      },
    });
    if (!read.ok) return this.#failed(read.failure, `read ${path}`);
    const { endOfFile, stat } = read.value;
    const content = encodeContent({ bytes: Buffer.concat(chunks), encoding, moreFollows: !endOfFile });
    if (content === undefined) {
      return failedEnd('NotUtf8', `read ${path}: the content is not UTF-8; ask for base64`);
    }
    return fileEnd({
      value: content.encoding === 'utf-8' ? content.content : null,
      structured: {
        operation: 'read',
        path,
        encoding: content.encoding,
        content: content.content,
        size: stat.size,
        offset: offset ?? 0,
        length: content.lengthBytes,
        truncated: !endOfFile,
      },
    });
  }

  async #write(
    server: FileServer,
    { path, content, encoding, mode }: ArgumentsOf<'write'>,
  ): Promise<ToolEnd> {
    const bytes = encoding === 'base64' ? fromBase64(content) : utf8(content);
    if (bytes === undefined) return failedEnd('InvalidArgument', 'content: canonical base64 was expected');
    const written = await server.write({
      path,
      cwd: this.#place.cwd,
      content: bytes,
      maxBytes: MAX_ARGUMENTS_BYTES * 4,
      ...(mode === undefined ? {} : { mode }),
    });
    if (!written.ok) return this.#failed(written.failure, `write ${path}`);
    const { bytesWritten, created } = written.value;
    return fileEnd({ structured: { operation: 'write', path, size: bytesWritten, created } });
  }

  async #list(server: FileServer, { path, cursor }: ArgumentsOf<'list'>): Promise<ToolEnd> {
    const position = cursor === undefined ? undefined : parseCursor(cursor);
    if (cursor !== undefined && position === undefined) {
      return failedEnd('InvalidArgument', 'cursor: the next_cursor of an earlier answer was expected');
    }
    const listed = await server.list({
      path,
      cwd: this.#place.cwd,
      ...(position === undefined ? {} : { cursor: position }),
    });
    if (!listed.ok) return this.#failed(listed.failure, `list ${path}`);
    const { entries, nextCursor } = listed.value;
    return fileEnd({
      structured: {
        operation: 'list',
        path,
        entries: entries.map(entryJson),
        next_cursor: nextCursor === null ? null : String(nextCursor),
      },
    });
  }

  async #delete(server: FileServer, { path, recursive }: ArgumentsOf<'delete'>): Promise<ToolEnd> {
    const deleted = await server.delete({ path, cwd: this.#place.cwd, recursive });
    if (!deleted.ok) return this.#failed(deleted.failure, `delete ${path}`);
    return fileEnd({ structured: { operation: 'delete', path, deleted: deleted.value.deleted } });
  }

  async #move(server: FileServer, { path, destination }: ArgumentsOf<'move'>): Promise<ToolEnd> {
    const moved = await server.move({ path, destination, cwd: this.#place.cwd });
    if (!moved.ok) return this.#failed(moved.failure, `move ${path} to ${destination}`);
    return fileEnd({ structured: { operation: 'move', path, destination } });
  }

  async #stat(server: FileServer, { path }: ArgumentsOf<'stat'>): Promise<ToolEnd> {
    const found = await server.stat({ path, cwd: this.#place.cwd });
    if (!found.ok) return this.#failed(found.failure, `stat ${path}`);
    return fileEnd({
      structured: { operation: 'stat', path, ...statJson(found.value), link: found.value.link },
    });
  }

  /** A server that ended or talks nonsense is not asked again: the next call has a new one. */
  #failed(problem: GuestFailure, what: string): ToolEnd {
    if (problem.reason === 'channel_ended' || problem.reason === 'protocol') this.#forget();
    return fileFailureEnd(problem, what);
  }

  #started(): Promise<GuestResult<FileServer>> {
    this.#server ??= this.#startServer();
    return this.#server;
  }

  async #startServer(): Promise<GuestResult<FileServer>> {
    const server = await FileServer.start(this.#link, {
      ...this.#place,
      readyTimeoutMs: SERVER_READY_TIMEOUT_MS,
    });
    if (server.ok) this.#ready = server.value;
    else this.#forget();
    return server;
  }

  #forget(): void {
    this.#server = this.#ready = undefined;
  }
}

function fileEnd(fields: Partial<ToolEnd>): ToolEnd {
  return toolEnd({ exitCode: 0, ...fields });
}

function parseCursor(cursor: string): number | undefined {
  return /^\d{1,15}$/.test(cursor) ? Number(cursor) : undefined;
}

/** A name that is not UTF-8 is shown with U+FFFD and given whole as base64. */
function entryJson(entry: FileEntry): object {
  const name = decodeUtf8(entry.name);
  if (name !== undefined) return { name, ...statJson(entry) };
  return {
    name: new TextDecoder().decode(entry.name),
    name_base64: toBase64(entry.name),
    ...statJson(entry),
  };
}

function statJson({ type, size, mode, mtimeMs }: Omit<FileStat, 'link'>): object {
  return { type, size, mode, modified_at: isoTime(mtimeMs) };
}

/** A guest may set any time, also one that no date can hold. */
function isoTime(timeMs: number): string | null {
  const date = new Date(timeMs);
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}
