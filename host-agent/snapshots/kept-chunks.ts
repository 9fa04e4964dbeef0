/**
 * What this host stored at the edge lately, kept as it was stored: a session that comes back here, and forks, need not
 * fetch it. It is sealed, and the key is kept nowhere: who has the folder alone has nothing, and what the edge grants no
 * more cannot be opened again.
 */
import { mkdir, readFile, rm, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** The disk is there for sandboxes first. */
const MAX_SHARE_OF_DISK = 1 / 8;

export interface KeptChunksOptions {
  /** Of this agent alone; not there yet, or empty. */
  directory: string;
  /** 0: nothing is kept. */
  maxBytes: number;
  maxAgeMs: number;
}

interface Kept {
  bytes: number;
  untilMs: number;
}

export class KeptChunks {
  readonly #options: KeptChunksOptions;
  /** By name, the oldest first. */
  readonly #kept = new Map<string, Kept>();
  readonly #writing = new Set<string>();
  #bytes = 0;
  #sweep: NodeJS.Timeout | undefined;

  constructor(options: KeptChunksOptions) {
    this.#options = options;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Never rejects: what cannot be kept is fetched when it is needed. */
  async put(name: string, stored: Uint8Array): Promise<void> {
    if (this.#kept.has(name) || this.#writing.has(name)) return;
    this.#writing.add(name);
    try {
      const room = await this.#room();
      if (stored.length > room) return;
      await this.#shrinkTo(room - stored.length);
      await writeFile(this.#pathOf(name), stored, { mode: 0o600, flag: 'wx' });
      this.#kept.set(name, { bytes: stored.length, untilMs: performance.now() + this.#options.maxAgeMs });
      this.#bytes += stored.length;
      this.#planSweep();
    } catch {
      await this.#remove(name);
    } finally {
      this.#writing.delete(name);
    }
  }

  /** Undefined where it is not here, or cannot be read. */
  async get(name: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    if (!this.#kept.has(name)) return undefined;
    try {
      return await readFile(this.#pathOf(name));
    } catch {
      await this.drop([name]);
      return undefined;
    }
  }

  async drop(names: Iterable<string>): Promise<void> {
    for (const name of names) {
      const kept = this.#kept.get(name);
      if (kept === undefined) continue;
      this.#kept.delete(name);
      this.#bytes -= kept.bytes;
      await this.#remove(name);
    }
  }

  async #room(): Promise<number> {
    const { directory, maxBytes } = this.#options;
    if (maxBytes === 0) return 0;
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const { bavail, bsize } = await statfs(directory);
    return Math.min(maxBytes, Math.floor((bavail * bsize + this.#bytes) * MAX_SHARE_OF_DISK));
  }

  async #shrinkTo(bytes: number): Promise<void> {
    for (const name of this.#kept.keys()) {
      if (this.#bytes <= bytes) return;
      await this.drop([name]);
    }
  }

  #planSweep(): void {
    const [oldest] = this.#kept.values();
    if (this.#sweep !== undefined || oldest === undefined) return;
    const delayMs = Math.max(0, oldest.untilMs - performance.now());
    this.#sweep = setTimeout(() => void this.#removeOld(), delayMs).unref();
  }

  async #removeOld(): Promise<void> {
    const nowMs = performance.now();
    const old = [...this.#kept].filter(([, { untilMs }]) => untilMs <= nowMs).map(([name]) => name);
    await this.drop(old);
    this.#sweep = undefined;
    this.#planSweep();
  }

  async #remove(name: string): Promise<void> {
    await rm(this.#pathOf(name), { force: true }).catch(() => undefined);
  }

  #pathOf(name: string): string {
    return join(this.#options.directory, name);
  }
}
