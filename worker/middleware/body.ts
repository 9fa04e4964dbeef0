/** The body of a request: counted while it is read, parsed once, strictly, and checked by the route's schema. */
import type * as z from 'zod';
import { type ErrorCode, failure, type Violation } from '../../shared/errors.ts';
import { MAX_BODY_BYTES } from '../../shared/limits.ts';
import { readRequestBytes } from '../identity/read-bounded.ts';
import { isInToolSchema } from '../json/exact-integers.ts';
import { lineAndColumn, parseStrictJson } from '../json/strict-json.ts';
import { Refusal } from './refusal.ts';
import { violation, violationsOf } from './violations.ts';

export const JSON_MEDIA_TYPE = 'application/json';
export const BYTES_MEDIA_TYPE = 'application/octet-stream';
export const EVENT_STREAM_MEDIA_TYPE = 'text/event-stream';
const BOUNDS = { maxDepth: 64, maxValues: 100_000 };

export interface RequestBody {
  mediaType: string;
  bytes: Uint8Array<ArrayBuffer>;
}

/** The raw body of one of the media types. An empty one needs no type and counts as the first. */
export async function readBody(
  request: Request,
  mediaTypes: readonly string[],
  maxBytes = MAX_BODY_BYTES,
): Promise<RequestBody> {
  if (request.headers.has('Content-Encoding')) {
    throw refuse('unsupported_media_type', 'bodies are taken as they are, without Content-Encoding');
  }
  const bytes = await read(request, maxBytes);
  if (bytes === undefined) throw refuse('payload_too_large', `the body is over ${maxBytes} bytes`);
  const mediaType = mediaTypeOf(request.headers.get('Content-Type'));
  if (mediaType !== undefined && mediaTypes.includes(mediaType)) return { mediaType, bytes };
  const first = mediaTypes[0];
  if (bytes.length === 0 && first !== undefined) return { mediaType: first, bytes };
  throw refuse('unsupported_media_type', `the Content-Type must be ${mediaTypes.join(' or ')}`);
}

async function read(request: Request, maxBytes: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
  try {
    return await readRequestBytes(request, maxBytes);
  } catch {
    throw refuse('invalid_request', 'the body ended before its end');
  }
}

/** An empty body reads as an empty object: routes without required fields need none. */
export function parseBody<T>(bytes: Uint8Array, schema: z.ZodType<T>): T {
  return checkValue(bytes.length === 0 ? {} : parseJson(bytes), schema, 'body');
}

export function checkValue<T>(value: unknown, schema: z.ZodType<T>, root: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw invalid(violationsOf(parsed.error, root));
}

export function invalid(violations: Violation[]): Refusal {
  const first = violations[0];
  const detail =
    first === undefined ? 'the request is not valid' : `${first.path}: expected ${first.expected}`;
  return new Refusal(failure('invalid_request', detail, { violations }));
}

function parseJson(bytes: Uint8Array): unknown {
  const text = decodeText(bytes);
  const parsed = parseStrictJson(text, BOUNDS, isInToolSchema);
  if (parsed.ok) return parsed.value;
  if (parsed.kind === 'syntax') {
    const { line, column } = lineAndColumn(text, parsed.position);
    throw refuse(
      'invalid_json',
      `not JSON at offset ${parsed.position} (line ${line}, column ${column}): expected ${parsed.expected}`,
    );
  }
  const path = parsed.path === '' ? 'body' : `body.${parsed.path}`;
  throw invalid([violation(path, parsed.expected)]);
}

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });

function decodeText(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch {
    throw refuse('invalid_json', 'the body is not text in UTF-8');
  }
}

/** The type without parameters; JSON has one encoding, so a charset other than UTF-8 is another type. */
function mediaTypeOf(header: string | null): string | undefined {
  if (header === null) return undefined;
  const [type, ...parameters] = header.split(';').map((part) => part.trim().toLowerCase());
  const foreign = parameters.some((part) => part.startsWith('charset=') && !/^charset="?utf-8"?$/.test(part));
  return foreign ? undefined : type;
}

function refuse(code: ErrorCode, detail: string): Refusal {
  return new Refusal(failure(code, detail));
}
