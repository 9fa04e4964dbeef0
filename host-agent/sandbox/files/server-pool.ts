/** File servers of one sandbox for transfers: each transfer has one for itself, and one stays for the next. */
import { setTimeout as wait } from 'node:timers/promises';
import { fail, type GuestResult } from '../../guest-link/failure.ts';
import { FileServer, type FileServerStart } from '../../guest-link/file-server.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';

const MAX_IDLE_SERVERS = 1;
/** For a server whose request nobody waits for any more to undo what it began. */
const ABORT_GRACE_MS = 2_000;

export class FileServerPool {
  readonly #link: GuestLink;
  readonly #start: FileServerStart;
  readonly #idle: FileServer[] = [];

  constructor(link: GuestLink, start: FileServerStart) {
    this.#link = link;
    this.#start = start;
  }

  async use<T>(
    signal: AbortSignal,
    work: (server: FileServer) => Promise<GuestResult<T>>,
  ): Promise<GuestResult<T>> {
    if (signal.aborted) return fail('file', 'nobody waits for it', 'ECANCELED');
    const taken = this.#take();
    const started = taken === undefined ? await FileServer.start(this.#link, this.#start) : undefined;
    if (started?.ok === false) return started;
    const server = taken ?? started?.value;
    if (server === undefined) return fail('channel_ended', 'the file server ended');
    const working = work(server);
    const given = await Promise.race([working, abortedFor(signal, working)]);
    if (given === undefined) {
      // A guest can stop its own programs: this one answers no more.
      await server.dispose();
      return working;
    }
    if (server.isBroken || this.#idle.length >= MAX_IDLE_SERVERS) await server.dispose();
    else this.#idle.push(server);
    return given;
  }

  #take(): FileServer | undefined {
    for (;;) {
      const server = this.#idle.pop();
      if (server?.isBroken !== true) return server;
    }
  }
}

/** Resolves when the signal has been aborted for a while and the work has not come to its end. */
async function abortedFor(signal: AbortSignal, working: Promise<unknown>): Promise<undefined> {
  const over = new AbortController();
  const end = (): void => over.abort();
  void working.then(end, end);
  await new Promise<void>((resolve) => {
    if (signal.aborted || over.signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true, signal: over.signal });
    over.signal.addEventListener('abort', () => resolve(), { once: true });
  });
  if (!over.signal.aborted) await wait(ABORT_GRACE_MS, undefined, { signal: over.signal }).catch(() => {});
  return undefined;
}
