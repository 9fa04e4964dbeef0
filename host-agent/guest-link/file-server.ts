/** Files of a sandbox, by a server inside it: every path is resolved by the guest's kernel, within the sandbox. */
import type { Channel } from './channel.ts';
import { type Deferred, deferred, within } from './deferred.ts';
import { fail, type GuestFailure, type GuestResult, succeed } from './failure.ts';
import {
  FILE_REQUEST,
  type FileList,
  type FileReply,
  type FileStat,
  fileMessage,
  fileRequest,
  type GuestPath,
  MAX_FILE_BODY_BYTES,
  MAX_LIST_ENTRIES,
  parseFileReply,
  parseList,
  parseStat,
  parseStatus,
  parseU64,
} from './file-messages.ts';
import type { GuestLink } from './guest-link.ts';
import { u32, u64 } from './integers.ts';
import { LengthPrefixedDecoder, lengthPrefixed } from './length-prefixed.ts';
import { ReplyQueue } from './reply-queue.ts';

export type { FileEntry, FileStat, FileType, GuestPath } from './file-messages.ts';

const SERVER_PATH = '/sandgate/files';
const MAX_WAITING_REQUESTS = 64;
const MAX_CURSOR = 0xffff_fffe;
const NO_MODE = 0xffff_ffff;
const DATA_BYTES = 128 * 1024;
const RELEASE_TIMEOUT_MS = 10_000;

export interface FileServerStart {
  readonly cwd: string;
  readonly environment: readonly string[];
  readonly readyTimeoutMs: number;
  /** Where the server lies in the sandbox. */
  readonly program?: string;
}

export interface PathRequest {
  readonly path: GuestPath;
  /** Where a relative path starts. */
  readonly cwd: GuestPath;
}

export interface ReadRequest extends PathRequest {
  readonly offset?: number;
  readonly length?: number;
  readonly onBytes: (bytes: Uint8Array) => void | Promise<void>;
}

export interface WriteRequest extends PathRequest {
  readonly mode?: number;
  readonly content: Uint8Array | AsyncIterable<Uint8Array>;
  readonly maxBytes: number;
}

/** What is said while one request is under way. */
export interface FileConversation {
  next(): Promise<GuestResult<FileReply>>;
  /** Settles when the guest has given credit for it. */
  send(kind: number, body?: Uint8Array): Promise<GuestResult<void>>;
  /** Whether the server has said something that was not taken yet. */
  readonly hasReply: boolean;
  /** What it says is not the protocol, or nobody listens any more: the server is not used again. */
  refuse(): GuestResult<never>;
}

async function accepted(request: ReadRequest, bytes: Uint8Array): Promise<boolean> {
  try {
    await request.onBytes(bytes);
    return true;
  } catch {
    return false;
  }
}

const malformed = () => fail('protocol', 'an answer that is not the protocol');

export class FileServer {
  readonly #link: GuestLink;
  readonly #channel: Channel;
  readonly #decoder = new LengthPrefixedDecoder(MAX_FILE_BODY_BYTES + 1);
  readonly #replies = new ReplyQueue();
  readonly #ready: Deferred<GuestResult<void>> = deferred();
  #waiting = 0;
  #isBroken = false;
  #last: Promise<unknown> = Promise.resolve();

  private constructor(link: GuestLink, channel: Channel) {
    this.#link = link;
    this.#channel = channel;
    void channel.exited.then(() =>
      this.#broke({ reason: 'channel_ended', message: 'the file server ended' }),
    );
  }

  static async start(link: GuestLink, options: FileServerStart): Promise<GuestResult<FileServer>> {
    let server: FileServer | undefined;
    const early: Uint8Array[] = [];
    const channel = await link.spawn({
      argv: [options.program ?? SERVER_PATH],
      cwd: options.cwd,
      environment: options.environment,
      control: true,
      muted: true,
      manualControl: true,
      onControl: (bytes) => (server === undefined ? early.push(bytes) : server.#receive(bytes)),
      timeoutMs: options.readyTimeoutMs,
    });
    if (!channel.ok) return channel;
    server = new FileServer(link, channel.value);
    for (const bytes of early) server.#receive(bytes);
    const late = () => fail('timeout', 'the file server did not become ready');
    const ready = await within(server.#ready.promise, options.readyTimeoutMs, late, link.standing);
    if (ready.ok) return succeed(server);
    await server.dispose();
    return ready;
  }

  /** One of a checkpoint that waits there for its next request. */
  static adopt(link: GuestLink, channelId: number): FileServer | undefined {
    let receive: (bytes: Uint8Array) => void = () => undefined;
    const onControl = (bytes: Uint8Array): void => receive(bytes);
    const channel = link.claim(channelId, { onControl, manualControl: true });
    if (channel === undefined) return undefined;
    const server = new FileServer(link, channel);
    server.#ready.resolve(succeed(undefined));
    receive = (bytes) => server.#receive(bytes);
    return server;
  }

  /** Of one that has nothing to do, so that it can be adopted elsewhere. */
  get idleChannelId(): number | null {
    return this.#waiting === 0 && !this.#isBroken ? this.#channel.id : null;
  }

  /** Gives the bytes in order; the guest waits while `onBytes` has not settled. */
  read(
    request: ReadRequest,
  ): Promise<GuestResult<{ bytesRead: number; endOfFile: boolean; stat: FileStat }>> {
    return this.#inTurn(() => this.#read(request));
  }

  /** Replaces the file at once when all content has come; makes missing folders above it. */
  write(request: WriteRequest): Promise<GuestResult<{ bytesWritten: number; created: boolean }>> {
    return this.#inTurn(() => this.#write(request));
  }

  list(
    request: PathRequest & { readonly cursor?: number; readonly limit?: number },
  ): Promise<GuestResult<FileList>> {
    const cursor = request.cursor ?? 0;
    const limit = Math.min(request.limit ?? MAX_LIST_ENTRIES, MAX_LIST_ENTRIES);
    if (!Number.isInteger(cursor) || cursor < 0 || cursor > MAX_CURSOR || limit < 1)
      return Promise.resolve(fail('file', 'a cursor or limit out of range', 'EINVAL'));
    const head = Buffer.concat([u32(cursor), u32(limit)]);
    return this.#ask(FILE_REQUEST.list, head, [request.cwd, request.path], parseList);
  }

  delete(request: PathRequest & { readonly recursive?: boolean }): Promise<GuestResult<{ deleted: number }>> {
    const head = Buffer.from([request.recursive === true ? 1 : 0]);
    return this.#ask(FILE_REQUEST.delete, head, [request.cwd, request.path], (body) => {
      const deleted = parseU64(body, 0);
      return deleted === undefined ? undefined : { deleted };
    });
  }

  async move(request: PathRequest & { readonly destination: GuestPath }): Promise<GuestResult<void>> {
    const paths = [request.cwd, request.path, request.destination];
    const moved = await this.#ask(FILE_REQUEST.move, Buffer.alloc(0), paths, () => true);
    return moved.ok ? succeed(undefined) : moved;
  }

  stat(request: PathRequest): Promise<GuestResult<FileStat>> {
    return this.#ask(FILE_REQUEST.stat, Buffer.alloc(0), [request.cwd, request.path], parseStat);
  }

  /** A request of several messages; `talk` begins when the request was sent, and has the server for itself. */
  converse<T>(
    request: { kind: number; head: Uint8Array; paths: readonly GuestPath[] },
    talk: (conversation: FileConversation) => Promise<GuestResult<T>>,
  ): Promise<GuestResult<T>> {
    return this.#inTurn(async () => {
      const message = fileRequest(request.kind, request.head, request.paths);
      if (!message.ok) return message;
      void this.#channel.sendControl(message.value);
      const replies = this.#replies;
      return talk({
        next: () => this.#next(),
        send: (kind, body) => this.#channel.sendControl(fileMessage(kind, body)),
        get hasReply() {
          return replies.hasReply;
        },
        refuse: () => this.#refuse(),
      });
    });
  }

  get isBroken(): boolean {
    return this.#isBroken;
  }

  async dispose(): Promise<void> {
    await this.#channel.release(RELEASE_TIMEOUT_MS);
  }

  /** The server handles one request at a time, so requests wait here, boundedly. */
  async #inTurn<T>(perform: () => Promise<GuestResult<T>>): Promise<GuestResult<T>> {
    if (this.#waiting >= MAX_WAITING_REQUESTS) return fail('limit', 'too many file requests wait');
    this.#waiting += 1;
    const letSleep = this.#link.hold();
    const turn = this.#last.then(perform);
    this.#last = turn;
    try {
      return await turn;
    } finally {
      this.#waiting -= 1;
      letSleep();
    }
  }

  async #next(): Promise<GuestResult<FileReply>> {
    const reply = await this.#replies.next();
    if (!reply.ok) return reply;
    this.#channel.consumeControl(reply.value.size);
    return succeed(reply.value.reply);
  }

  #ask<T>(
    kind: number,
    head: Uint8Array,
    paths: readonly GuestPath[],
    parse: (body: Buffer) => T | undefined,
  ): Promise<GuestResult<T>> {
    return this.#inTurn(async () => {
      const request = fileRequest(kind, head, paths);
      if (!request.ok) return request;
      void this.#channel.sendControl(request.value);
      const reply = await this.#next();
      if (!reply.ok) return reply;
      if (reply.value.kind === 'failed') return { ok: false, failure: reply.value.failure };
      const value = reply.value.kind === 'done' ? parse(reply.value.body) : undefined;
      return value === undefined ? this.#refuse() : succeed(value);
    });
  }

  async #read(
    request: ReadRequest,
  ): Promise<GuestResult<{ bytesRead: number; endOfFile: boolean; stat: FileStat }>> {
    const length = request.length ?? Number.MAX_SAFE_INTEGER;
    const head = Buffer.concat([u64(request.offset ?? 0), u64(length)]);
    const message = fileRequest(FILE_REQUEST.read, head, [request.cwd, request.path]);
    if (!message.ok) return message;
    void this.#channel.sendControl(message.value);
    let stat: FileStat | undefined;
    let bytesRead = 0;
    for (;;) {
      const reply = await this.#next();
      if (!reply.ok) return reply;
      switch (reply.value.kind) {
        case 'failed':
          return { ok: false, failure: reply.value.failure };
        case 'stat': {
          const status = parseStatus(reply.value.body, 0);
          if (status === undefined || stat !== undefined) return this.#refuse();
          stat = { ...status, link: false };
          break;
        }
        case 'data':
          bytesRead += reply.value.bytes.length;
          if (stat === undefined || bytesRead > length) return this.#refuse();
          if (!(await accepted(request, reply.value.bytes))) return this.#refuse();
          break;
        case 'done': {
          const { body } = reply.value;
          if (stat === undefined || body.length !== 9 || parseU64(body, 0) !== bytesRead)
            return this.#refuse();
          return succeed({ bytesRead, endOfFile: body[8] === 1, stat });
        }
      }
    }
  }

  async #write(request: WriteRequest): Promise<GuestResult<{ bytesWritten: number; created: boolean }>> {
    const paths = [request.cwd, request.path];
    const message = fileRequest(FILE_REQUEST.write, u32(request.mode ?? NO_MODE), paths);
    if (!message.ok) return message;
    void this.#channel.sendControl(message.value);
    const ended = await this.#sendContent(request);
    const kind = ended === undefined ? FILE_REQUEST.commit : FILE_REQUEST.abort;
    const sent = await this.#channel.sendControl(lengthPrefixed(Buffer.from([kind])));
    if (!sent.ok) return sent;
    const reply = await this.#next();
    if (!reply.ok) return reply;
    if (reply.value.kind === 'failed') return { ok: false, failure: ended ?? reply.value.failure };
    const { kind: replyKind } = reply.value;
    if (replyKind !== 'done' || reply.value.body.length !== 9) return this.#refuse();
    const bytesWritten = parseU64(reply.value.body, 0);
    if (bytesWritten === undefined || ended !== undefined) return this.#refuse();
    return succeed({ bytesWritten, created: reply.value.body[8] === 1 });
  }

  /** Sends the content until its end, the bound, or an early failure; a failure is why it must be aborted. */
  async #sendContent(request: WriteRequest): Promise<GuestFailure | undefined> {
    const parts = request.content instanceof Uint8Array ? [request.content] : request.content;
    let total = 0;
    try {
      for await (const part of parts) {
        total += part.byteLength;
        if (total > request.maxBytes)
          return { reason: 'file', message: `more than ${request.maxBytes} bytes`, errno: 'too_large' };
        for (let at = 0; at < part.byteLength; at += DATA_BYTES) {
          if (this.#replies.hasReply) return undefined;
          const body = Buffer.concat([
            Buffer.from([FILE_REQUEST.data]),
            part.subarray(at, Math.min(at + DATA_BYTES, part.byteLength)),
          ]);
          const sent = await this.#channel.sendControl(lengthPrefixed(body));
          if (!sent.ok) return sent.failure;
        }
      }
    } catch (error: unknown) {
      const message = error instanceof Error ? error.message : 'the content could not be read';
      return { reason: 'file', message, errno: 'ECANCELED' };
    }
    return undefined;
  }

  /** The server's memory can be reached by programs of the same user: one that talks nonsense is not used again. */
  #refuse(): GuestResult<never> {
    const failure = malformed();
    this.#broke(failure.failure);
    return failure;
  }

  #receive(bytes: Uint8Array): void {
    const { bodies, failure } = this.#decoder.push(bytes);
    for (const message of bodies) {
      const reply = parseFileReply(message);
      if (reply === undefined) this.#broke(malformed().failure);
      else if (!this.#ready.settled) {
        this.#channel.consumeControl(4 + message.length);
        this.#ready.resolve(succeed(undefined));
      } else this.#replies.push({ reply, size: 4 + message.length });
    }
    if (failure !== undefined) this.#broke(failure);
  }

  #broke(failure: GuestFailure): void {
    this.#isBroken = true;
    this.#ready.resolve({ ok: false, failure });
    this.#replies.fail(failure);
    void this.#channel.release(RELEASE_TIMEOUT_MS);
  }
}
