/** Keeps the first bytes of a stream and counts the rest, so a talkative process cannot fill our memory. */
import type { Readable } from 'node:stream';

export interface BoundedOutput {
  text(): string;
  readonly totalBytes: number;
  readonly truncated: boolean;
  /** Resolves when the stream has ended or broken. */
  ended: Promise<void>;
}

export function collectBounded(stream: Readable, maxBytes: number): BoundedOutput {
  const chunks: Buffer[] = [];
  let keptBytes = 0;
  let totalBytes = 0;
  stream.on('data', (chunk: Buffer) => {
    totalBytes += chunk.length;
    const kept = chunk.subarray(0, maxBytes - keptBytes);
    if (kept.length === 0) return;
    chunks.push(kept);
    keptBytes += kept.length;
  });
  const ended = new Promise<void>((resolve) => {
    stream.once('close', resolve);
    stream.once('error', () => resolve());
  });
  return {
    text: () => Buffer.concat(chunks).toString('utf8'),
    get totalBytes() {
      return totalBytes;
    },
    get truncated() {
      return totalBytes > keptBytes;
    },
    ended,
  };
}
