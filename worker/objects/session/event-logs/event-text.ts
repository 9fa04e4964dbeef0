/** Text of events on its way to be bytes: in parts, each of which is written where it goes without being joined before. */
import { utf8 } from '../../../../shared/encoding.ts';

export interface TextPart {
  text: string;
  /** What it takes in UTF-8, as far as that is known. */
  bytes: number;
}

const encoder = new TextEncoder();

/** A part that is ASCII, or short. */
export function plain(text: string): TextPart {
  return { text, bytes: text.length };
}

export function bytesOf(parts: readonly TextPart[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((total, { bytes }) => total + bytes, 0));
  let at = 0;
  for (const { text } of parts) {
    const { read, written } = encoder.encodeInto(text, whole.subarray(at));
    // It takes more than was thought: what was not UTF-8 before, or is not ASCII.
    if (read < text.length) return utf8(parts.map((part) => part.text).join(''));
    at += written;
  }
  return whole.subarray(0, at);
}
