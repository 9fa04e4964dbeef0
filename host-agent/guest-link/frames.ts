/**
 * Frames between the host and a supervisor: u32 length (of what follows) | u8 type | u32 channel | payload, big-endian.
 * What the guest sends is untrusted: every field is checked here, once, and a wrong one is a value, not an exception.
 */
import { fail, type GuestResult, succeed } from './failure.ts';

export const WIRE_VERSION = 1;
export const MAX_FRAME_LENGTH = 256 * 1024 + 16;
const LENGTH_BYTES = 4;
const HEAD_BYTES = 5;
export const MAX_PAYLOAD_BYTES = 256 * 1024;
const MAX_SHARED_BYTES = 32 * 1024;

export const HOST_FRAME = {
  hello: 0x01,
  ping: 0x02,
  spawn: 0x03,
  stdin: 0x04,
  stdinClose: 0x05,
  controlIn: 0x06,
  signal: 0x07,
  mark: 0x08,
  killSinceMark: 0x09,
  mute: 0x0a,
  unmute: 0x0b,
  credit: 0x0c,
  release: 0x0d,
  census: 0x0e,
  standStill: 0x0f,
  goOn: 0x10,
  fork: 0x14,
} as const;

export type HostFrameType = (typeof HOST_FRAME)[keyof typeof HOST_FRAME];

/** Streams as numbers of the wire. */
export const STREAM = { stdin: 0, stdout: 1, stderr: 2, control: 3 } as const;

export type GuestFrame =
  | { readonly type: 'ready'; readonly version: number; readonly pid: number }
  | { readonly type: 'pong'; readonly payload: Uint8Array }
  | { readonly type: 'counted'; readonly others: number }
  | { readonly type: 'stands_still' | 'goes_on' }
  | { readonly type: 'spawned'; readonly channel: number; readonly pid: number }
  | {
      readonly type: 'spawn_failed';
      readonly channel: number;
      readonly errno: number;
      readonly message: string;
    }
  | {
      readonly type: 'stdout' | 'stderr' | 'control';
      readonly channel: number;
      readonly bytes: Uint8Array;
    }
  | {
      readonly type: 'exit';
      readonly channel: number;
      readonly code: number;
      readonly signal: number;
      readonly cpuMs: number;
      readonly maxRssBytes: number;
    }
  | {
      readonly type: 'killed';
      readonly channel: number;
      readonly killed: number;
      readonly complete: boolean;
    }
  | {
      readonly type: 'input_credit';
      readonly channel: number;
      readonly stream: 'stdin' | 'control';
      readonly bytes: number;
    }
  | { readonly type: 'error'; readonly channel: number; readonly message: string }
  | { readonly type: 'gone' | 'released'; readonly channel: number };

export function encodeFrame(type: HostFrameType, channel: number, payload?: Uint8Array): Buffer {
  const length = payload?.byteLength ?? 0;
  const frame = Buffer.allocUnsafe(LENGTH_BYTES + HEAD_BYTES + length);
  frame.writeUInt32BE(HEAD_BYTES + length, 0);
  frame.writeUInt8(type, LENGTH_BYTES);
  frame.writeUInt32BE(channel, LENGTH_BYTES + 1);
  if (payload !== undefined) frame.set(payload, LENGTH_BYTES + HEAD_BYTES);
  return frame;
}

function parsePayload(type: number, channel: number, payload: Buffer): GuestFrame | undefined {
  const size = payload.length;
  switch (type) {
    case 0x81:
      return size === 5
        ? { type: 'ready', version: payload.readUInt8(0), pid: payload.readUInt32BE(1) }
        : undefined;
    case 0x82:
      return size <= 64 ? { type: 'pong', payload } : undefined;
    case 0x83:
      return size === 4 ? { type: 'spawned', channel, pid: payload.readUInt32BE(0) } : undefined;
    case 0x84:
      return size >= 4 && size <= 256
        ? {
            type: 'spawn_failed',
            channel,
            errno: payload.readUInt32BE(0),
            message: payload.toString('utf8', 4),
          }
        : undefined;
    case 0x85:
      return { type: 'stdout', channel, bytes: payload };
    case 0x86:
      return { type: 'stderr', channel, bytes: payload };
    case 0x87:
      return { type: 'control', channel, bytes: payload };
    case 0x88:
      return size === 20
        ? {
            type: 'exit',
            channel,
            code: payload.readUInt32BE(0),
            signal: payload.readUInt32BE(4),
            cpuMs: payload.readUInt32BE(8) * 2 ** 32 + payload.readUInt32BE(12),
            maxRssBytes: payload.readUInt32BE(16) * 1024,
          }
        : undefined;
    case 0x89:
      return size === 5
        ? { type: 'killed', channel, killed: payload.readUInt32BE(0), complete: payload.readUInt8(4) === 1 }
        : undefined;
    case 0x8a: {
      if (size !== 5) return undefined;
      const stream = payload.readUInt8(0);
      if (stream !== STREAM.stdin && stream !== STREAM.control) return undefined;
      return {
        type: 'input_credit',
        channel,
        stream: stream === STREAM.stdin ? 'stdin' : 'control',
        bytes: payload.readUInt32BE(1),
      };
    }
    case 0x8b:
      return size <= 256 ? { type: 'error', channel, message: payload.toString('utf8') } : undefined;
    case 0x8c:
      return size === 0 ? { type: 'released', channel } : undefined;
    case 0x8d:
      return size === 0 ? { type: 'gone', channel } : undefined;
    case 0x8e:
      return size === 4 ? { type: 'counted', others: payload.readUInt32BE(0) } : undefined;
    case 0x8f:
      return size === 0 ? { type: 'stands_still' } : undefined;
    case 0x90:
      return size === 0 ? { type: 'goes_on' } : undefined;
    default:
      return undefined;
  }
}

/** A short payload that is kept must not keep the whole block alive that it arrived in. */
function detached(payload: Buffer): Buffer {
  if (payload.length >= MAX_SHARED_BYTES) return payload;
  const copy = Buffer.allocUnsafeSlow(payload.length);
  payload.copy(copy);
  return copy;
}

/** Takes bytes in pieces of any size and gives whole frames; holds less than one frame between calls. */
export class FrameDecoder {
  readonly #head = Buffer.alloc(LENGTH_BYTES + HEAD_BYTES);
  #headBytes = 0;
  /** Where a payload is put together that came in pieces: each of its bytes is copied once. */
  #room: Buffer | undefined;
  #roomBytes = 0;
  #broken = false;

  /** The frames that are complete with these bytes. After a failure the decoder takes nothing more. */
  push(bytes: Uint8Array): GuestResult<GuestFrame[]> {
    if (this.#broken) return fail('malformed_frame', 'the stream was broken before');
    const chunk = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const frames: GuestFrame[] = [];
    for (let at = 0; at < chunk.length; ) {
      at += this.#takeHead(chunk, at);
      const length = this.#headBytes < LENGTH_BYTES ? HEAD_BYTES : this.#head.readUInt32BE(0);
      if (length < HEAD_BYTES || length > MAX_FRAME_LENGTH)
        return this.#break(`frame length ${length}, expected ${HEAD_BYTES} to ${MAX_FRAME_LENGTH}`);
      if (this.#headBytes < this.#head.length) break;
      const piece = chunk.subarray(at, at + length - HEAD_BYTES - this.#roomBytes);
      at += piece.length;
      const payload = this.#takePayload(piece, length - HEAD_BYTES);
      if (payload === undefined) break;
      this.#headBytes = 0;
      const type = this.#head.readUInt8(LENGTH_BYTES);
      const frame = parsePayload(type, this.#head.readUInt32BE(LENGTH_BYTES + 1), payload);
      if (frame === undefined) return this.#break(`frame of type ${type} with a payload it cannot have`);
      frames.push(frame);
    }
    return succeed(frames);
  }

  #takeHead(chunk: Buffer, at: number): number {
    const taken = chunk.copy(this.#head, this.#headBytes, at);
    this.#headBytes += taken;
    return taken;
  }

  /** The payload once it is whole. */
  #takePayload(piece: Buffer, bytes: number): Buffer | undefined {
    if (piece.length === bytes) return detached(piece);
    if (piece.length === 0) return undefined;
    this.#room ??= Buffer.allocUnsafeSlow(bytes);
    piece.copy(this.#room, this.#roomBytes);
    this.#roomBytes += piece.length;
    if (this.#roomBytes < bytes) return undefined;
    const whole = this.#room;
    this.#room = undefined;
    this.#roomBytes = 0;
    return whole;
  }

  #break(message: string): GuestResult<never> {
    this.#broken = true;
    this.#room = undefined;
    return fail('malformed_frame', message);
  }
}
