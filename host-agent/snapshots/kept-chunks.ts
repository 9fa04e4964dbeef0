/**
 * What this host stored at the edge lately, kept as it was stored: a session that comes back here, and forks, need not
 * fetch it. It is sealed, and the key is kept nowhere: who has the folder alone has nothing, and what the edge grants no
 * more cannot be opened again.
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { KeptEntries } from './kept-entries.ts';
import type { KeptRoom } from './kept-room.ts';

export interface KeptChunksOptions {
  /** Of this agent alone; not there yet, or empty. */
  directory: string;
  room: KeptRoom;
  maxAgeMs: number;
}

export class KeptChunks {
  readonly #directory: string;
  readonly #room: KeptRoom;
  readonly #kept: KeptEntries<null>;
  readonly #writing = new Set<string>();

  constructor({ directory, room, maxAgeMs }: KeptChunksOptions) {
    this.#directory = directory;
    this.#room = room;
    this.#kept = new KeptEntries({ maxAgeMs, remove: (name) => this.#remove(name) });
    room.add(this.#kept);
  }

  /** Never rejects: what cannot be kept is fetched when it is needed. */
  async put(name: string, stored: Uint8Array): Promise<void> {
    if (this.#kept.get(name) !== undefined || this.#writing.has(name)) return;
    this.#writing.add(name);
    try {
      using room = await this.#room.reserve(stored.length, this.#kept);
      if (room === undefined) return;
      await mkdir(this.#directory, { recursive: true, mode: 0o700 });
      await writeFile(this.#pathOf(name), stored, { mode: 0o600, flag: 'wx' });
      this.#kept.add(name, null, stored.length);
    } catch {
      await this.#remove(name);
    } finally {
      this.#writing.delete(name);
    }
  }

  /** Undefined where it is not here, or cannot be read. */
  async get(name: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    if (this.#kept.get(name) === undefined) return undefined;
    try {
      return await readFile(this.#pathOf(name));
    } catch {
      await this.drop([name]);
      return undefined;
    }
  }

  drop(names: Iterable<string>): Promise<void> {
    return this.#kept.drop(names);
  }

  async #remove(name: string): Promise<void> {
    await rm(this.#pathOf(name), { force: true }).catch(() => undefined);
  }

  #pathOf(name: string): string {
    return join(this.#directory, name);
  }
}
