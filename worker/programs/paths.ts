/**
 * Where a tool stands below `tools` in a program. It follows from the name alone: the parts between the dots, in which a
 * dash is written as two underscores. A name that cannot be written so has its letters and a part of its hash instead.
 * No two names meet, whatever tools there are.
 */
import { sha256Hex } from '../../shared/digest.ts';
import { isIdentifier } from '../formats/names.ts';

const MAX_PARTS = 6;
const MAX_PATH_CHARACTERS = 128;
const HASH_CHARACTERS = 10;
/** Single separators between letters and digits: then the way back is one. */
const PART = /^[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)*$/;
/** What functions and the two objects have by themselves, in either language. */
const OWN = new Set(
  'aio call names help toString constructor prototype name length apply bind arguments caller then None True False'.split(
    ' ',
  ),
);

export async function programPath(name: string): Promise<string[]> {
  const parts = name.split('.');
  const isPlain =
    name.length <= MAX_PATH_CHARACTERS && parts.length <= MAX_PARTS && parts.every((part) => PART.test(part));
  if (isPlain) return parts.map(written);
  const hash = await sha256Hex(name);
  const stem = name
    .normalize('NFKD')
    .replaceAll(/[^A-Za-z0-9]+/g, '_')
    .replaceAll(/^[_0-9]+|_+$/g, '')
    .slice(0, MAX_PATH_CHARACTERS / 2)
    .replace(/_+$/, '');
  // Three underscores are in no name that is written as it is.
  return [`${stem === '' ? 'tool' : stem}___${hash.slice(0, HASH_CHARACTERS)}`];
}

/** An underscore at the end is in no part by itself. */
function written(part: string): string {
  const text = part.replaceAll('-', '__');
  return OWN.has(text) || !isIdentifier(text) ? `${text}_` : text;
}
