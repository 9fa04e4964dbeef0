/** Snapshots as a host makes and takes them: checkpoints on its disk, and their way to the edge and back. */
import { hash, randomBytes } from 'node:crypto';
import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import type { ResourceLimits } from '../../shared/session.ts';
import {
  PLAIN_SNAPSHOT_LIFETIME_MS,
  type RescuePayload,
  type RestorePayload,
  type SnapshotManifest,
  type SnapshotRequirements,
  type SuspendPayload,
  WORKSPACE_FILE,
} from '../../shared/snapshot.ts';
import {
  HOST_STATE_FILE,
  type HostState,
  HostStateSchema,
  MAX_HOST_STATE_BYTES,
} from '../execution/carried.ts';
import { downloadFiles, filesToOpen, readManifest, readPieces, tooLarge } from './download.ts';
import { KeptChunks } from './kept-chunks.ts';
import { KeptImages } from './kept-images.ts';
import { KeptRoom } from './kept-room.ts';
import { Sealing } from './sealing.ts';
import { SealingThreads } from './sealing-threads.ts';
import { PATIENT_ATTEMPTS, SnapshotStorage, type StorageOptions } from './storage.ts';
import { uploadFiles } from './upload.ts';

/** A session that is called again is so soon, or nobody knows when. */
const KEPT_FOR_MS = 60 * 60_000;
/** Beside what the limits of a sandbox let it hold: gVisor's own state, and that of the host. */
const SNAPSHOT_ALLOWANCE_BYTES = 512 * 1024 * 1024;

export interface SnapshotsOptions {
  edgeUrl: string;
  /** Of this agent alone: what lies there is removed when it starts. */
  directory: string;
  /** How much of what was stored at the edge is kept here too, sealed and plain; 0: nothing. */
  keptBytes: number;
  /** Of a workspace that is stored beside its checkpoint, as a tar archive; 0: none is. */
  maxWorkspaceBytes: number;
  host: { runscVersion: string; runscPlatform: string; guestSha256?: string | undefined };
  cpuFeaturesSha256: string;
}

export interface Stored {
  manifestSha256: string;
  bytes: number;
  storedBytes: number;
}

export type ManifestFacts = Omit<
  SnapshotManifest,
  'v' | 'snapshot_id' | 'created_at' | 'files' | keyof SnapshotRequirements
>;

interface Fetched {
  folder: string;
  manifest: SnapshotManifest;
  close(): Promise<void>;
}

type StoragePlace = Pick<SuspendPayload, 'snapshot_id' | 'key' | 'transfer_token'>;

interface AboutStored {
  facts: ManifestFacts;
  image: string;
  signal: AbortSignal;
  isPatient: boolean;
}

interface Storing {
  sessionId: string;
  isWanted: boolean;
}

interface Shared {
  fetched: Promise<Outcome<Fetched>>;
  users: number;
}

/** The files of a snapshot, to be read only. */
export interface OpenSnapshot extends AsyncDisposable {
  folder: string;
  state: HostState;
  /** The session goes on from here: nobody is made of it again. */
  forget(): Promise<void>;
  /** Nothing came of it: the next time its files are opened anew, every piece verified. */
  doubt(): Promise<void>;
}

export class Snapshots {
  readonly #options: SnapshotsOptions;
  readonly #room: KeptRoom;
  readonly #images: KeptImages;
  readonly #kept: KeptChunks;
  readonly #threads = new SealingThreads();
  /** Sessions of which something is being stored, with whether it is still to be kept then. */
  readonly #storing = new Set<Storing>();
  /** Forks begin at once: what they are made of is opened once for all of them. */
  readonly #shared = new Map<string, Shared>();

  private constructor(options: SnapshotsOptions) {
    this.#options = options;
    const { directory, keptBytes: maxBytes } = options;
    const room = new KeptRoom({ directory, maxBytes });
    this.#room = room;
    // What lies here plain can be had of what lies here sealed, so it gives way to that.
    this.#images = new KeptImages({
      directory: join(directory, 'images'),
      room,
      maxAgeMs: PLAIN_SNAPSHOT_LIFETIME_MS,
    });
    this.#kept = new KeptChunks({ directory: join(directory, 'kept'), room, maxAgeMs: KEPT_FOR_MS });
  }

  static async open(options: SnapshotsOptions): Promise<Snapshots> {
    await rm(options.directory, { recursive: true, force: true });
    await mkdir(options.directory, { recursive: true, mode: 0o700 });
    return new Snapshots(options);
  }

  /** Of snapshots that lie at the edge. */
  get keptBytes(): number {
    return this.#room.bytes;
  }

  get maxWorkspaceBytes(): number {
    return this.#options.maxWorkspaceBytes;
  }

  get cpuFeaturesSha256(): string {
    return this.#options.cpuFeaturesSha256;
  }

  requirements(image: string): SnapshotRequirements {
    const { host, cpuFeaturesSha256 } = this.#options;
    return {
      image,
      runsc_version: host.runscVersion.slice(0, 64),
      runsc_platform: host.runscPlatform.slice(0, 64),
      cpu_features_sha256: cpuFeaturesSha256,
      ...(host.guestSha256 === undefined ? {} : { guest_sha256: host.guestSha256 }),
    };
  }

  /** An empty folder for the files of one checkpoint; `remove` it. */
  async folder(): Promise<string> {
    this.#threads.warm();
    const folder = join(this.#options.directory, randomBytes(8).toString('hex'));
    await mkdir(folder, { mode: 0o700 });
    return folder;
  }

  async remove(folder: string): Promise<void> {
    await rm(folder, { recursive: true, force: true });
  }

  /**
   * All files of the folder, and then the manifest; the folder is kept then, or for the caller to remove. `isPatient`: nobody
   * waits, so a storage that is away is waited for.
   */
  async store(folder: string, place: StoragePlace, about: AboutStored): Promise<Outcome<Stored>> {
    const storing = { sessionId: about.facts.session_id, isWanted: true };
    this.#storing.add(storing);
    try {
      const stored = await this.#store(folder, place, about);
      if (!stored.ok) return stored;
      const { manifest, ...rest } = stored.value;
      const name = { manifestSha256: rest.manifestSha256, key: place.key };
      await this.#images.keep(folder, name, manifest, () => storing.isWanted);
      return success(rest);
    } finally {
      this.#storing.delete(storing);
    }
  }

  async #store(
    folder: string,
    { snapshot_id, key, transfer_token }: StoragePlace,
    about: AboutStored,
  ): Promise<Outcome<Stored & { manifest: SnapshotManifest }>> {
    const patience = about.isPatient ? { attempts: PATIENT_ATTEMPTS } : {};
    const storage = this.#storage(snapshot_id, { ...patience, token: transfer_token, signal: about.signal });
    const sealing = new Sealing(this.#threads, snapshot_id, key);
    const uploaded = await uploadFiles(folder, { storage, sealing });
    if (!uploaded.ok) return uploaded;
    const { files, bytes, storedBytes } = uploaded.value;
    const manifest: SnapshotManifest = {
      v: 1,
      snapshot_id,
      created_at: new Date().toISOString(),
      ...this.requirements(about.image),
      ...about.facts,
      files,
    };
    const encoded = new TextEncoder().encode(JSON.stringify(manifest));
    const manifestSha256 = hash('sha256', encoded);
    const put = await storage.putManifest(manifestSha256, encoded);
    if (!put.ok) return put;
    return success({ manifestSha256, bytes, storedBytes, manifest });
  }

  /** The workspace that it has beside its checkpoint, verified piece by piece, whatever host made it. */
  async workspace(
    { snapshot_id, key, transfer_token, manifest_sha256 }: RescuePayload,
    signal: AbortSignal,
  ): Promise<Outcome<AsyncIterable<Outcome<Uint8Array>>>> {
    const storage = this.#storage(snapshot_id, { token: transfer_token, signal });
    const manifest = await readManifest(storage, { snapshotId: snapshot_id, sha256: manifest_sha256 });
    if (!manifest.ok) return manifest;
    const file = manifest.value.files.find(({ name }) => name === WORKSPACE_FILE);
    if (file === undefined) return failure('snapshot_mismatch', 'the snapshot has no workspace of its own');
    const sealing = new Sealing(this.#threads, snapshot_id, key);
    return success(readPieces(file, { storage, sealing }));
  }

  /** Its files, once it is known that this host can go on with them. */
  async fetch(
    snapshot: RestorePayload,
    { image, limits }: { image: string; limits: ResourceLimits },
    signal: AbortSignal,
  ): Promise<Outcome<OpenSnapshot>> {
    const maxBytes =
      limits.memory_bytes + limits.workspace_bytes + limits.tmp_bytes + SNAPSHOT_ALLOWANCE_BYTES;
    const name = JSON.stringify([snapshot.manifest_sha256, snapshot.key, image, maxBytes]);
    const shared = this.#shared.get(name) ?? {
      fetched: this.#fetch(snapshot, { image, maxBytes, signal }),
      users: 0,
    };
    this.#shared.set(name, shared);
    shared.users += 1;
    const close = async (): Promise<void> => {
      shared.users -= 1;
      if (shared.users > 0) return;
      this.#shared.delete(name);
      const fetched = await shared.fetched.catch(() => undefined);
      if (fetched?.ok === true) await fetched.value.close();
    };
    const opened = await this.#opened(shared).catch(async (error: unknown) => {
      await close();
      throw error;
    });
    if (!opened.ok) await close();
    if (!opened.ok) return opened;
    const { folder, manifest, state } = opened.value;
    const chunks = manifest.files.flatMap((file) => file.chunks.map(({ sha256 }) => sha256));
    const doubt = () => this.#images.drop(snapshot.manifest_sha256);
    const forget = async (): Promise<void> => {
      await doubt();
      await this.#kept.drop([snapshot.manifest_sha256, ...chunks]);
    };
    return success({ folder, state, forget, doubt, [Symbol.asyncDispose]: close });
  }

  /** The session ends, or went elsewhere: nothing of it lies here plain any longer, nor what is being stored of it. */
  forgetSession(sessionId: string): Promise<void> {
    for (const storing of this.#storing) if (storing.sessionId === sessionId) storing.isWanted = false;
    return this.#images.dropOfSession(sessionId);
  }

  /** The agent stops: nothing is left here that can be read without a key. */
  close(): Promise<void> {
    return this.#images.close();
  }

  async #opened({ fetched }: Shared): Promise<Outcome<Omit<Fetched, 'close'> & { state: HostState }>> {
    const got = await fetched;
    if (!got.ok) return got;
    const { folder, manifest } = got.value;
    const state = await readHostState(folder, manifest);
    return state === undefined
      ? failure('snapshot_damaged', 'the state of the host is not in the snapshot')
      : success({ folder, manifest, state });
  }

  async #fetch(
    { snapshot_id, key, transfer_token, manifest_sha256 }: RestorePayload,
    { image, maxBytes, signal }: { image: string; maxBytes: number; signal: AbortSignal },
  ): Promise<Outcome<Fetched>> {
    const kept = await this.#images.open({ manifestSha256: manifest_sha256, key });
    if (kept !== undefined) {
      const fault = this.#mismatch(kept.manifest, image) ?? tooLarge(filesToOpen(kept.manifest), maxBytes);
      if (fault === undefined) return success(kept);
      await kept.close();
      return fault;
    }
    this.#threads.warm();
    const storage = this.#storage(snapshot_id, { token: transfer_token, signal });
    const manifest = await readManifest(storage, { snapshotId: snapshot_id, sha256: manifest_sha256 });
    if (!manifest.ok) return manifest;
    const fault = this.#mismatch(manifest.value, image);
    if (fault !== undefined) return fault;
    const sealing = new Sealing(this.#threads, snapshot_id, key);
    const folder = await this.folder();
    const files = await downloadFiles(filesToOpen(manifest.value), folder, { storage, sealing, maxBytes });
    const close = () => this.remove(folder);
    if (files.ok) return success({ folder, manifest: manifest.value, close });
    await close();
    return files;
  }

  /** Why this host cannot go on from it. */
  #mismatch(manifest: SnapshotManifest, image: string): Failure | undefined {
    for (const [name, here] of Object.entries(this.requirements(image))) {
      const there: unknown = Reflect.get(manifest, name);
      // Of a snapshot of before the state beside the checkpoint says it.
      if (there === undefined && name === 'guest_sha256') continue;
      if (there !== here) return failure('snapshot_mismatch', `${name} of the snapshot is another one`);
    }
    return undefined;
  }

  #storage(snapshotId: string, how: Pick<StorageOptions, 'token' | 'signal' | 'attempts'>): SnapshotStorage {
    return new SnapshotStorage({ edgeUrl: this.#options.edgeUrl, snapshotId, kept: this.#kept, ...how });
  }
}

async function readHostState(folder: string, manifest: SnapshotManifest): Promise<HostState | undefined> {
  const file = manifest.files.find(({ name }) => name === HOST_STATE_FILE);
  if (file === undefined || file.bytes > MAX_HOST_STATE_BYTES) return undefined;
  try {
    return HostStateSchema.safeParse(JSON.parse(await readFile(join(folder, HOST_STATE_FILE), 'utf8'))).data;
  } catch {
    return undefined;
  }
}
