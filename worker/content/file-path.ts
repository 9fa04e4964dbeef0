/** The file that a URL names: any bytes, percent-encoded. Relative to the workspace unless it begins with a slash. */
import { toBase64 } from '../../shared/encoding.ts';
import { MAX_PATH_BYTES } from '../../shared/transfer.ts';
import { invalid } from '../middleware/body.ts';

export interface FilePath {
  bytes: Uint8Array;
  /** As the host is asked. */
  base64: string;
}

const ROUTE = /^\/v1\/sessions\/[^/]+\/files\/(.*)$/;

/** The router's own decoding takes UTF-8 only, so the path is taken from the URL. */
export function filePathOf(url: string): FilePath {
  const encoded = ROUTE.exec(new URL(url).pathname)?.[1] ?? '';
  return pathOf(percentDecoded(encoded), 'path');
}

export function pathOfText(text: string, where: string): FilePath {
  return pathOf(new TextEncoder().encode(text), where);
}

function pathOf(bytes: Uint8Array, where: string): FilePath {
  if (bytes.length > MAX_PATH_BYTES || bytes.includes(0)) {
    throw invalid([{ path: where, expected: `at most ${MAX_PATH_BYTES} bytes, none of them zero` }]);
  }
  const given = bytes.length === 0 ? new Uint8Array([DOT]) : bytes;
  return { bytes: given, base64: toBase64(given) };
}

const DOT = 0x2e;
const PERCENT = 0x25;

/** A URL is ASCII; a percent sign without two digits stands for itself. */
function percentDecoded(text: string): Uint8Array {
  const bytes: number[] = [];
  for (let at = 0; at < text.length; at += 1) {
    const digits =
      text.charCodeAt(at) === PERCENT ? /^[0-9A-Fa-f]{2}$/.exec(text.slice(at + 1, at + 3)) : null;
    bytes.push(digits === null ? text.charCodeAt(at) : Number.parseInt(digits[0], 16));
    if (digits !== null) at += 2;
  }
  return Uint8Array.from(bytes);
}
