/** Has the files of a checkpoint back from the edge. Nothing is believed but the digest of the manifest. */
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { join } from 'node:path';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import { type SnapshotManifest, SnapshotManifestSchema, WORKSPACE_FILE } from '../../shared/snapshot.ts';
import { inParallel } from './parallel.ts';
import type { Sealing } from './sealing.ts';
import type { SnapshotStorage } from './storage.ts';

const CHUNKS_AT_ONCE = 6;

type SnapshotFile = SnapshotManifest['files'][number];
type SnapshotChunk = SnapshotFile['chunks'][number];

interface Place {
  chunk: SnapshotChunk;
  /** Where its piece goes: more than one place where pieces are equal. */
  at: { file: FileHandle; offset: number }[];
}

export async function readManifest(
  storage: SnapshotStorage,
  expected: { snapshotId: string; sha256: string },
): Promise<Outcome<SnapshotManifest>> {
  const got = await storage.getManifest(expected.sha256);
  if (!got.ok) return got;
  const manifest = parse(got.value);
  if (manifest === undefined || manifest.snapshot_id !== expected.snapshotId) {
    return failure('snapshot_damaged', 'the manifest is not one of this snapshot');
  }
  return success(manifest);
}

function parse(bytes: Uint8Array): SnapshotManifest | undefined {
  try {
    return SnapshotManifestSchema.safeParse(
      JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)),
    ).data;
  } catch {
    return undefined;
  }
}

/** A session goes on from all but the workspace beside it. */
export function filesToOpen({ files }: SnapshotManifest): SnapshotManifest['files'] {
  return files.filter(({ name }) => name !== WORKSPACE_FILE);
}

/** `maxBytes`: of all of them. */
export function tooLarge(files: readonly SnapshotFile[], maxBytes: number): Failure | undefined {
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  return bytes > maxBytes ? failure('snapshot_damaged', 'the snapshot is too large') : undefined;
}

/** Into an empty folder, which is made. `maxBytes`: of all of them, for they take room on this host as plain bytes. */
export async function downloadFiles(
  files: readonly SnapshotFile[],
  directory: string,
  { storage, sealing, maxBytes }: { storage: SnapshotStorage; sealing: Sealing; maxBytes: number },
): Promise<Outcome<null>> {
  const refused = tooLarge(files, maxBytes);
  if (refused !== undefined) return refused;
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const handles: FileHandle[] = [];
  try {
    const places = new Map<string, Place>();
    for (const { name, bytes, chunks } of files) {
      const file = await open(join(directory, name), 'wx', 0o600);
      handles.push(file);
      let offset = 0;
      for (const chunk of chunks) {
        const place = places.get(chunk.sha256) ?? { chunk, at: [] };
        places.set(chunk.sha256, place);
        place.at.push({ file, offset });
        offset += chunk.bytes;
      }
      if (offset !== bytes) return failure('snapshot_damaged', 'a file is not the sum of its pieces');
    }
    const failed = await inParallel(places.values(), CHUNKS_AT_ONCE, (place) =>
      fill(place, storage, sealing),
    );
    return failed ?? success(null);
  } finally {
    await Promise.all(handles.map((handle) => handle.close()));
  }
}

/** The content of one file in order; the first that fails is the last. */
export async function* readPieces(
  { chunks }: SnapshotFile,
  { storage, sealing }: { storage: SnapshotStorage; sealing: Sealing },
): AsyncGenerator<Outcome<Uint8Array>> {
  for (const chunk of chunks) {
    const piece = await readPiece(chunk, storage, sealing);
    yield piece;
    if (!piece.ok) return;
  }
}

async function readPiece(
  chunk: SnapshotChunk,
  storage: SnapshotStorage,
  sealing: Sealing,
): Promise<Outcome<Uint8Array>> {
  const stored = await storage.getChunk(chunk.sha256);
  if (!stored.ok) return stored;
  const piece = await sealing.open(stored.value, chunk.bytes);
  return piece === undefined ? failure('snapshot_damaged', 'a chunk does not verify') : success(piece);
}

async function fill(
  { chunk, at }: Place,
  storage: SnapshotStorage,
  sealing: Sealing,
): Promise<Outcome<null>> {
  const read = await readPiece(chunk, storage, sealing);
  if (!read.ok) return read;
  const piece = read.value;
  for (const { file, offset } of at) {
    for (let written = 0; written < piece.length; ) {
      const { bytesWritten } = await file.write(piece, written, piece.length - written, offset + written);
      written += bytesWritten;
    }
  }
  return success(null);
}
