/** Headers of requests and answers about files (RFC 9110, RFC 9530). */
import { fromBase64 } from '../../shared/encoding.ts';
import type { Conditions, FileFacts, Range, TransferHead } from '../../shared/transfer.ts';
import { invalid } from '../middleware/body.ts';

const ENTITY_TAGS = /^(?:W\/)?"[\x21\x23-\x7e]*"(?:\s*,\s*(?:W\/)?"[\x21\x23-\x7e]*")*$/;
const MAX_TAGS = 32;

export function conditionsOf(headers: Headers): Conditions {
  return { if_match: tagsOf(headers, 'If-Match'), if_none_match: tagsOf(headers, 'If-None-Match') };
}

function tagsOf(headers: Headers, name: string): Conditions['if_match'] {
  const text = headers.get(name)?.trim();
  if (text === undefined) return null;
  if (text === '*') return '*';
  const tags = ENTITY_TAGS.test(text) ? (text.match(/(?:W\/)?"[^"]*"/g) ?? []) : [];
  if (tags.length === 0 || tags.length > MAX_TAGS || tags.some((tag) => tag.length > 256)) {
    throw invalid([{ path: `header.${name}`, expected: '* or a list of entity tags in quotes' }]);
  }
  return tags;
}

/** One range of bytes. Anything else is no range to this server, which may then give the whole file. */
export function rangeOf(headers: Headers): Range | null {
  const match = /^bytes=\s*(?:(\d{1,15})-(\d{1,15})?|-(\d{1,15}))\s*$/i.exec(headers.get('Range') ?? '');
  if (match === null) return null;
  const [, first, last, suffix] = match;
  if (suffix !== undefined) return { suffix: Number(suffix) };
  const range = { first: Number(first), last: last === undefined ? null : Number(last) };
  return range.last !== null && range.last < range.first ? null : range;
}

/** A date never names this file: two versions may have one. The range then does not count. */
export function ifRangeOf(headers: Headers): string | null {
  const text = headers.get('If-Range')?.trim();
  if (text === undefined) return null;
  return ENTITY_TAGS.test(text) && text.length <= 256 ? text : '"-"';
}

/** The SHA-256 that the body has to have, in hexadecimal. */
export function sha256Of(headers: Headers): string | null {
  for (const name of ['Content-Digest', 'Repr-Digest']) {
    const text = headers.get(name);
    if (text === null) continue;
    const base64 = /(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]+):/.exec(text)?.[1];
    // Other algorithms may be left out by a receiver; a sha-256 that is none may not.
    if (base64 === undefined && !/(?:^|,)\s*sha-256=/.test(text)) continue;
    const bytes = base64 === undefined ? undefined : fromBase64(base64);
    if (bytes?.length !== 32) throw invalid([{ path: `header.${name}`, expected: 'sha-256=:<base64>:' }]);
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  }
  return null;
}

export function factHeaders(facts: FileFacts): Record<string, string> {
  const modified = new Date(facts.modified_ms);
  return {
    ETag: facts.etag,
    ...(Number.isNaN(modified.getTime()) ? {} : { 'Last-Modified': modified.toUTCString() }),
  };
}

export function contentHeaders(head: TransferHead, path: Uint8Array): Record<string, string> {
  const { facts, length, offset, answer } = head;
  return {
    ...(facts === null ? {} : factHeaders(facts)),
    'Accept-Ranges': 'bytes',
    'Cache-Control': 'no-store, no-transform',
    'Content-Type': contentTypeOf(path),
    'Content-Disposition': dispositionOf(path),
    ...(length === null ? {} : { 'Content-Length': String(length) }),
    ...(answer === 'part' && length !== null && facts !== null
      ? { 'Content-Range': `bytes ${offset}-${offset + length - 1}/${facts.size}` }
      : {}),
  };
}

/**
 * Only types that no proxy compresses on the way: what a client gets has the length and the tag of the file. Text says
 * nothing of its encoding anyway.
 */
const CONTENT_TYPES: Readonly<Record<string, string>> = {
  gif: 'image/gif',
  gz: 'application/gzip',
  jpeg: 'image/jpeg',
  jpg: 'image/jpeg',
  mp4: 'video/mp4',
  pdf: 'application/pdf',
  png: 'image/png',
  webp: 'image/webp',
  zip: 'application/zip',
};

function contentTypeOf(path: Uint8Array): string {
  const extension = /\.([A-Za-z0-9]{1,8})$/.exec(lastName(path))?.[1]?.toLowerCase() ?? '';
  return Object.hasOwn(CONTENT_TYPES, extension)
    ? (CONTENT_TYPES[extension] ?? 'application/octet-stream')
    : 'application/octet-stream';
}

/** The name for a client that saves it, with every byte that is not plain encoded (RFC 8187). */
export function dispositionOf(path: Uint8Array, suffix = ''): string {
  const name = new TextEncoder().encode(`${lastName(path)}${suffix}`);
  const encoded = Array.from(name, (byte) => {
    const character = String.fromCharCode(byte);
    return /[A-Za-z0-9._-]/.test(character)
      ? character
      : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  });
  return `attachment; filename*=UTF-8''${encoded.join('')}`;
}

function lastName(path: Uint8Array): string {
  return (
    new TextDecoder()
      .decode(path)
      .split('/')
      .filter((part) => part !== '')
      .at(-1) ?? 'workspace'
  );
}
