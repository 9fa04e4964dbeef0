/** Reads a body into memory up to a cap. */
import { concatBytes } from '../../shared/encoding.ts';

/** The body of a request, or `undefined` where it has more than `maxBytes`. Rejects where it ends before its end. */
export async function readRequestBytes(
  request: Request,
  maxBytes: number,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const length = request.headers.get('Content-Length');
  if (length === null) return readBounded(request.body, maxBytes);
  if (Number(length) > maxBytes) return undefined;
  // HTTP itself ends a body at the length that it declared; reading a stream piece by piece costs four times as much.
  const bytes = new Uint8Array(await request.arrayBuffer());
  return bytes.length > maxBytes ? undefined : bytes;
}

/** The bytes, counted while they arrive, or `undefined` as soon as there are more than `maxBytes`; the rest is not read then. */
export async function readBounded(
  stream: ReadableStream<Uint8Array> | null,
  maxBytes: number,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  if (stream === null) return new Uint8Array(0);
  const reader = stream.getReader();
  const chunks: Uint8Array[] = [];
  let total = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return concatBytes(chunks);
    total += value.length;
    if (total > maxBytes) {
      await reader.cancel();
      return undefined;
    }
    chunks.push(value);
  }
}
