/**
 * The files of checkpoints that this host has just stored at the edge, as gVisor wrote them: a session that comes back here
 * within minutes need not have them opened again. They are plain, in a folder of root's alone, and go at once with the
 * session, when it goes on, and by themselves soon.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { mkdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type SnapshotManifest, WORKSPACE_FILE } from '../../shared/snapshot.ts';
import { filesToOpen } from './download.ts';
import { KeptEntries } from './kept-entries.ts';
import type { KeptRoom } from './kept-room.ts';

export interface KeptImagesOptions {
  /** Of this agent alone; not there yet, or empty. */
  directory: string;
  room: KeptRoom;
  maxAgeMs: number;
}

/** What the edge has to name for it to be used: nobody goes on from it who could not have opened what is stored. */
export interface ImageName {
  manifestSha256: string;
  /** Under which it is stored. */
  key: string;
}

interface KeptImage {
  folder: string;
  manifest: SnapshotManifest;
  keySha256: Buffer;
  /** What `stampOf` says of each of its files. */
  stamps: Map<string, string>;
  users: number;
  isDropped: boolean;
}

/** To be read only; `close` it. */
export interface OpenImage {
  folder: string;
  manifest: SnapshotManifest;
  close(): Promise<void>;
}

export class KeptImages {
  readonly #directory: string;
  readonly #room: KeptRoom;
  readonly #kept: KeptEntries<KeptImage>;
  #isClosed = false;

  constructor({ directory, room, maxAgeMs }: KeptImagesOptions) {
    this.#directory = directory;
    this.#room = room;
    this.#kept = new KeptEntries({ maxAgeMs, remove: (_, image) => this.#dropped(image) });
    room.add(this.#kept);
  }

  /**
   * Takes the folder away where there is room for it, and it is still wanted then. Never rejects: what is not kept is opened
   * when it is needed.
   */
  async keep(
    from: string,
    { manifestSha256, key }: ImageName,
    manifest: SnapshotManifest,
    isWanted: () => boolean,
  ): Promise<void> {
    const files = filesToOpen(manifest);
    const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    const folder = join(this.#directory, manifestSha256);
    try {
      if (this.#isClosed || !isWanted() || this.#kept.get(manifestSha256) !== undefined) return;
      using room = await this.#room.reserve(bytes, this.#kept);
      if (room === undefined) return;
      await mkdir(this.#directory, { recursive: true, mode: 0o700 });
      await rm(join(from, WORKSPACE_FILE), { force: true });
      await rename(from, folder);
      const stamps = new Map<string, string>();
      for (const { name } of files) stamps.set(name, await stampOf(join(folder, name)));
      // Its session may have ended meanwhile, or this agent: nobody would find it any more.
      if (this.#isClosed || !isWanted()) throw new Error('it is wanted no longer');
      const image = { folder, manifest, keySha256: sha256(key), stamps, users: 0, isDropped: false };
      this.#kept.add(manifestSha256, image, bytes);
    } catch {
      await rm(folder, { recursive: true, force: true }).catch(() => undefined);
    }
  }

  /** Undefined where it is not here, not for who has this key, or not as it was kept. */
  async open({ manifestSha256, key }: ImageName): Promise<OpenImage | undefined> {
    const image = this.#kept.get(manifestSha256);
    if (image === undefined || !timingSafeEqual(image.keySha256, sha256(key))) return undefined;
    image.users += 1;
    const close = async (): Promise<void> => {
      image.users -= 1;
      if (image.isDropped && image.users === 0) await this.#remove(image);
    };
    if (await isUntouched(image)) return { folder: image.folder, manifest: image.manifest, close };
    await this.#kept.drop([manifestSha256]);
    await close();
    return undefined;
  }

  drop(manifestSha256: string): Promise<void> {
    return this.#kept.drop([manifestSha256]);
  }

  dropOfSession(sessionId: string): Promise<void> {
    return this.#kept.drop(this.#kept.namesOf(({ manifest }) => manifest.session_id === sessionId));
  }

  /** Nothing is kept here from now on. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#kept.drop(this.#kept.namesOf(() => true));
  }

  async #dropped(image: KeptImage): Promise<void> {
    image.isDropped = true;
    if (image.users === 0) await this.#remove(image);
  }

  async #remove({ folder }: KeptImage): Promise<void> {
    await rm(folder, { recursive: true, force: true }).catch(() => undefined);
  }
}

async function isUntouched({ folder, stamps }: KeptImage): Promise<boolean> {
  for (const [name, stamp] of stamps) {
    const now = await stampOf(join(folder, name)).catch(() => undefined);
    if (now !== stamp) return false;
  }
  return true;
}

/** Changes with every write. */
async function stampOf(path: string): Promise<string> {
  const { ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
  return [ino, size, mtimeNs, ctimeNs].join(' ');
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
