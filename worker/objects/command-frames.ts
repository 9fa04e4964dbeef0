/** A command as frames: the grant, and its payload in as many parts as it takes. */
import { encodeFrame } from '../../shared/frames.ts';
import { MAX_FRAME_PAYLOAD_BYTES } from '../../shared/limits.ts';

export function commandFrames(grant: string, payload: Uint8Array, requestId?: string): Uint8Array[] {
  const about = requestId === undefined ? {} : { request_id: requestId };
  const parts = Math.max(1, Math.ceil(payload.length / MAX_FRAME_PAYLOAD_BYTES));
  return Array.from({ length: parts }, (_, part) =>
    encodeFrame(
      { type: 'command', grant, part, parts, ...about },
      payload.subarray(part * MAX_FRAME_PAYLOAD_BYTES, (part + 1) * MAX_FRAME_PAYLOAD_BYTES),
    ),
  );
}
