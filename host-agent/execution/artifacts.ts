/** What a receipt says of the parts of an answer: of each its name, its digest and its length. */
import { hash } from 'node:crypto';
import type { Artifact } from '../../shared/receipt.ts';
import type { OutgoingFrame } from './uplink.ts';

/** Of the frames that carry them; a part in several pieces is one artifact. */
export function artifactsOf(frames: readonly OutgoingFrame[]): Artifact[] {
  const artifacts: Artifact[] = [];
  let pieces: Uint8Array[] = [];
  for (const { frame, payload } of frames) {
    if (frame.type !== 'part') continue;
    pieces.push(payload);
    if (!frame.last) continue;
    const bytes = Buffer.concat(pieces);
    pieces = [];
    const path = frame.field === 'result' ? `results/${frame.index}` : frame.field;
    artifacts.push({ path, sha256: hash('sha256', bytes), bytes: bytes.length });
  }
  return artifacts;
}
