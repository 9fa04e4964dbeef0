/** Pieces of output as data: cut, joined to rows, and passed by a reader. Pure. */
import { concatBytes } from '../../../../shared/encoding.ts';
import type { StreamName } from '../../../../shared/execution.ts';
import type { OutputPiece } from '../rows/records.ts';

/** Rows are joined up to this size, well below SQLite's limit for one value. */
const MAX_ROW_BYTES = 262_144;

export interface PendingPiece {
  /** Whether it is of the last bytes of its stream, which have rows of their own. */
  tail: boolean;
  piece: OutputPiece;
}

/** The part of a piece from `from` on. */
export function beyond(piece: OutputPiece, from: number): OutputPiece | undefined {
  if (piece.offset >= from) return piece.bytes.length === 0 ? undefined : piece;
  const skipped = from - piece.offset;
  if (skipped >= piece.bytes.length) return undefined;
  return { stream: piece.stream, offset: from, bytes: piece.bytes.subarray(skipped) };
}

/** Moves a position over pieces; gives those parts that it had not passed. A jump in offsets is a gap. */
export function advance(position: Record<StreamName, number>, pieces: readonly OutputPiece[]): OutputPiece[] {
  return pieces.flatMap((piece) => {
    const fresh = beyond(piece, position[piece.stream]);
    if (fresh === undefined) return [];
    position[piece.stream] = fresh.offset + fresh.bytes.length;
    return [fresh];
  });
}

/** What lies together becomes one row. */
export function joined(pending: readonly PendingPiece[]): PendingPiece[] {
  const rows: { tail: boolean; stream: StreamName; offset: number; end: number; chunks: Uint8Array[] }[] = [];
  for (const { tail, piece } of pending) {
    const last = rows.at(-1);
    const end = piece.offset + piece.bytes.length;
    if (
      last?.stream === piece.stream &&
      last.tail === tail &&
      last.end === piece.offset &&
      end - last.offset <= MAX_ROW_BYTES
    ) {
      last.chunks.push(piece.bytes);
      last.end = end;
    } else {
      rows.push({ tail, stream: piece.stream, offset: piece.offset, end, chunks: [piece.bytes] });
    }
  }
  return rows.map(({ tail, stream, offset, chunks }) => ({
    tail,
    piece: { stream, offset, bytes: joinBytes(chunks) },
  }));
}

export function joinBytes(chunks: readonly Uint8Array[]): Uint8Array {
  const [first] = chunks;
  return first !== undefined && chunks.length === 1 ? first : concatBytes(chunks);
}
