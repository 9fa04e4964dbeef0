/** The files of a real sandbox, by file servers inside it. */
import { type Failure, type Outcome, success } from '../../../shared/errors.ts';
import type { FileChange, FileFacts } from '../../../shared/transfer.ts';
import type { GuestResult } from '../../guest-link/failure.ts';
import type { FileStatus } from '../../guest-link/file-messages.ts';
import type { FileServer } from '../../guest-link/file-server.ts';
import {
  archiveFolder,
  extractArchive,
  readFile,
  replaceFile,
  watchFolder,
} from '../../guest-link/file-transfer.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import type { Wakefulness } from '../../guest-link/wakefulness.ts';
import type { ToolPlace } from '../tools/tool.ts';
import { changeOf } from './changes.ts';
import { fileFailure } from './failures.ts';
import type { ListedFile, SandboxFiles } from './port.ts';
import { FileServerPool } from './server-pool.ts';

const SERVER_READY_TIMEOUT_MS = 20_000;

type RequestOf<Operation extends keyof SandboxFiles> = Parameters<SandboxFiles[Operation]>[0];

type Asked = { path: Uint8Array; signal: AbortSignal };
type Work<T> = (server: FileServer, place: { cwd: string; path: Uint8Array }) => Promise<GuestResult<T>>;

export class ServedFiles implements SandboxFiles {
  readonly #servers: FileServerPool;
  readonly #wakefulness: Wakefulness;
  readonly #cwd: string;
  /** Of guarded writes one is put in place after the other: two that saw the same file cannot both replace it. */
  #guarded: Promise<unknown> = Promise.resolve();

  constructor(link: GuestLink, place: ToolPlace, wakefulness: Wakefulness) {
    this.#wakefulness = wakefulness;
    this.#cwd = place.cwd;
    this.#servers = new FileServerPool(link, { ...place, readyTimeoutMs: SERVER_READY_TIMEOUT_MS });
  }

  async read(request: RequestOf<'read'>) {
    const { onBytes } = request;
    const choose = (status: FileStatus) => request.choose(factsOf(status));
    return this.#outcome(request, (server, place) => readFile(server, { ...place, choose, onBytes }));
  }

  async write(request: RequestOf<'write'>) {
    const { mode, guarded } = request;
    const accept = (before: FileStatus | null) => request.accept(before === null ? null : factsOf(before));
    const finished = Promise.withResolvers<void>();
    const content = guarded ? this.#inOrder(request.content, finished.promise) : request.content;
    const written = await this.#outcome(request, (server, place) =>
      replaceFile(server, { ...place, mode, guarded, accept, content }),
    );
    finished.resolve();
    if (!written.ok) return written;
    if (written.value === undefined) return success(null);
    const { bytes, created, status } = written.value;
    return success({ bytes, created, facts: factsOf(status) });
  }

  async list(
    request: RequestOf<'list'>,
  ): Promise<Outcome<{ entries: ListedFile[]; nextCursor: number | null }>> {
    const { cursor, limit } = request;
    const listed = await this.#outcome(request, (server, place) => server.list({ ...place, cursor, limit }));
    if (!listed.ok) return listed;
    const entries = listed.value.entries.map((entry) => ({ name: entry.name, ...factsOf(entry) }));
    return success({ entries, nextCursor: listed.value.nextCursor });
  }

  async delete(request: RequestOf<'delete'>) {
    const { recursive } = request;
    return this.#outcome(request, (server, place) => server.delete({ ...place, recursive }));
  }

  async archive(request: RequestOf<'archive'>) {
    const { onBegin, onBytes } = request;
    return this.#outcome(request, (server, place) => archiveFolder(server, { ...place, onBegin, onBytes }));
  }

  async extract(request: RequestOf<'extract'>) {
    const { onBegin, content } = request;
    return this.#outcome(
      request,
      (server, place) => extractArchive(server, { ...place, onBegin, content }),
      true,
    );
  }

  async watch(request: RequestOf<'watch'>): Promise<Outcome<null>> {
    const { onBegin, signal } = request;
    // Not held awake: while the sandbox sleeps nothing can change.
    const watched = await this.#serve(request, (server, place) =>
      watchFolder(server, {
        ...place,
        onBegin,
        signal,
        onChanges: (changes) =>
          request.onChanges(
            changes.map(changeOf).filter((change): change is FileChange => change !== undefined),
          ),
      }),
    );
    return watched.ok ? success(null) : watched;
  }

  /** A sandbox that works for the host alone looks idle, and must not be put to sleep over it. */
  async #outcome<T>(
    asked: Asked,
    work: Work<T>,
    isArchive = false,
  ): Promise<{ ok: true; value: T } | Failure> {
    const letSleep = this.#wakefulness.hold();
    try {
      return await this.#serve(asked, work, isArchive);
    } finally {
      letSleep();
    }
  }

  async #serve<T>(
    { path, signal }: Asked,
    work: Work<T>,
    isArchive = false,
  ): Promise<{ ok: true; value: T } | Failure> {
    const result = await this.#servers.use(signal, (server) => work(server, { cwd: this.#cwd, path }));
    return result.ok ? success(result.value) : fileFailure(result.failure, path, isArchive);
  }

  /** The content ends, so that the write is put in place, when those before it are done. */
  async *#inOrder(content: AsyncIterable<Uint8Array>, finished: Promise<void>): AsyncIterable<Uint8Array> {
    yield* content;
    const before = this.#guarded;
    this.#guarded = before.then(() => finished);
    await before;
  }
}

function factsOf({ type, size, mode, mtimeMs, version }: FileStatus): FileFacts {
  return { type, size, mode, modified_ms: mtimeMs, etag: `"${version}"` };
}
