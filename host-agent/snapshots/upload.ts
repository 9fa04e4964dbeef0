/** Brings the files of a checkpoint to the edge: piece by piece, a few at once, each piece that is equal to another once. */
import { type FileHandle, open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import {
  MAX_SNAPSHOT_BYTES,
  MAX_SNAPSHOT_CHUNKS,
  MAX_SNAPSHOT_FILES,
  SNAPSHOT_PIECE_BYTES,
  type SnapshotManifest,
  WORKSPACE_FILE,
} from '../../shared/snapshot.ts';
import { inParallel } from './parallel.ts';
import { type SealedPiece, sealedBytesAtMost } from './sealed-piece.ts';
import type { Sealing } from './sealing.ts';
import { SpareBuffers } from './spare-buffers.ts';
import type { SnapshotStorage } from './storage.ts';

/** Pieces under way: what is held of them in memory is at most three times as much. */
const PIECES_AT_ONCE = 4;
const SEALED_BYTES = sealedBytesAtMost(SNAPSHOT_PIECE_BYTES);

type SnapshotFile = SnapshotManifest['files'][number];
type SnapshotChunk = SnapshotFile['chunks'][number];

export interface Uploaded {
  files: SnapshotFile[];
  bytes: number;
  /** Each chunk once. */
  storedBytes: number;
}

interface Piece {
  file: { name: string; bytes: number; chunks: (SnapshotChunk | undefined)[] };
  index: number;
  bytes: Uint8Array<ArrayBuffer>;
}

export async function uploadFiles(
  directory: string,
  { storage, sealing }: { storage: SnapshotStorage; sealing: Sealing },
): Promise<Outcome<Uploaded>> {
  const files: Piece['file'][] = [];
  const stored = new Map<string, Promise<Outcome<null>>>();
  let storedBytes = 0;
  const plain = new SpareBuffers(SNAPSHOT_PIECE_BYTES);
  const sealedInto = new SpareBuffers(SEALED_BYTES);
  const seal = async (piece: Uint8Array<ArrayBuffer>): Promise<SealedPiece> => {
    if (piece.length < SNAPSHOT_PIECE_BYTES) return sealing.seal(piece);
    const { spent, ...sealed } = await sealing.sealInto(piece, sealedInto.take());
    if (spent !== null) plain.give(spent);
    return sealed;
  };
  const put = async ({ sha256, stored }: SealedPiece, isKept: boolean): Promise<Outcome<null>> => {
    const done = await storage.putChunk(sha256, stored, { isKept });
    // Of one that failed something may be on its way still.
    if (done.ok) sealedInto.give(stored.buffer);
    return done;
  };
  const failed = await inParallel(piecesOf(directory, files, plain), PIECES_AT_ONCE, async (piece) => {
    const { length } = piece.bytes;
    const sealed = await seal(piece.bytes);
    const { sha256 } = sealed;
    piece.file.chunks[piece.index] = { sha256, bytes: length, stored_bytes: sealed.stored.length };
    const known = stored.get(sha256);
    if (known !== undefined) {
      sealedInto.give(sealed.stored.buffer);
      return known;
    }
    storedBytes += sealed.stored.length;
    // A session that comes back here is restored whole.
    const putting = put(sealed, piece.file.name !== WORKSPACE_FILE);
    stored.set(sha256, putting);
    if (stored.size > MAX_SNAPSHOT_CHUNKS) return failure('suspend_failed', 'the checkpoint is too large');
    return putting;
  });
  if (failed !== undefined) return failed;
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  if (files.length > MAX_SNAPSHOT_FILES || bytes > MAX_SNAPSHOT_BYTES) {
    return failure('suspend_failed', 'the checkpoint is too large');
  }
  const whole = files.map((file) => ({ ...file, chunks: file.chunks.flatMap((chunk) => chunk ?? []) }));
  return success({ files: whole, bytes, storedBytes });
}

async function* piecesOf(
  directory: string,
  files: Piece['file'][],
  plain: SpareBuffers,
): AsyncGenerator<Piece> {
  for (const name of (await readdir(directory)).sort()) {
    const file: Piece['file'] = { name, bytes: 0, chunks: [] };
    files.push(file);
    await using handle = await open(join(directory, name), 'r');
    const { size } = await handle.stat();
    while (file.bytes < size) {
      const bytes = await readPiece(handle, Math.min(SNAPSHOT_PIECE_BYTES, size - file.bytes), plain);
      if (bytes.length === 0) break;
      const index = file.chunks.push(undefined) - 1;
      file.bytes += bytes.length;
      yield { file, index, bytes };
    }
  }
}

/** Less where the file is shorter than it was. */
async function readPiece(
  handle: FileHandle,
  bytes: number,
  plain: SpareBuffers,
): Promise<Uint8Array<ArrayBuffer>> {
  const isWhole = bytes === SNAPSHOT_PIECE_BYTES;
  const piece = new Uint8Array(isWhole ? plain.take() : Buffer.allocUnsafeSlow(bytes).buffer);
  let length = 0;
  while (length < bytes) {
    const { bytesRead } = await handle.read(piece, length, bytes - length);
    if (bytesRead === 0) return piece.slice(0, length);
    length += bytesRead;
  }
  return piece;
}
