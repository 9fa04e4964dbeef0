/**
 * The client reads the numbers of a server's answer as doubles. An answer with data that would not be what the server wrote is
 * marked before the client sees it, so that it is refused and never given rounded. Of a list of tools the integers that would
 * be rounded are noted beside it.
 */
import { isSchema } from '../../formats/json-schema.ts';
import { parseExactly } from '../../json/exact-integers.ts';
import { inexactNumber } from '../../json/strict-json.ts';
import { INTEGERS, notedIntegers } from './exact-tools.ts';

const MARK = 'sandgate/inexact';
/** Without one of these no number is past what a double holds. */
const LONG_NUMBER = /\d{16}|\d[eE]\+?\d{3}/;
const BOUNDS = { maxDepth: 512, maxValues: 2_000_000 };
const MAX_PLACE_CHARACTERS = 256;

/** A message, or several, as the client may read it. */
export function exactMessage(text: string): string {
  if (!LONG_NUMBER.test(text)) return text;
  const fault = inexactNumber(text, BOUNDS, isData);
  if (fault?.kind === 'syntax') return text;
  const message = parsed(text);
  if (message === undefined) return text;
  if (fault === undefined) return withIntegers(message) ?? text;
  // Which of several it is does not show in the parsed ones: all of them are marked.
  const all = Array.isArray(message) ? message.map((one) => marked(one, fault.path)) : undefined;
  return JSON.stringify(all ?? marked(message, fault.path));
}

/** Where in the answer the data is that cannot be given; undefined where there is none. */
export function inexactPlace({
  _meta,
}: {
  _meta?: Readonly<Record<string, unknown>> | undefined;
}): string | undefined {
  const place = _meta?.[MARK];
  return typeof place === 'string' ? place : undefined;
}

/** Undefined where nothing is to be noted. A list comes as a message of its own. */
function withIntegers(message: unknown): string | undefined {
  if (!isSchema(message) || !isSchema(message.result)) return undefined;
  const { result } = message;
  const integers = notedIntegers(result.tools);
  if (integers === undefined) return undefined;
  const meta = isSchema(result._meta) ? result._meta : {};
  return JSON.stringify({ ...message, result: { ...result, _meta: { ...meta, [INTEGERS]: integers } } });
}

function isData(path: readonly (string | number)[]): boolean {
  const [field, part] = typeof path[0] === 'number' ? path.slice(1) : path;
  return field === 'result' && part === 'structuredContent';
}

function marked(message: unknown, path: string): unknown {
  if (!isSchema(message) || !isSchema(message.result)) return message;
  const { result } = message;
  const meta = isSchema(result._meta) ? result._meta : {};
  const place = path.replace(/^(?:\d+\.)?result\./, '').slice(0, MAX_PLACE_CHARACTERS);
  return { ...message, result: { ...result, _meta: { ...meta, [MARK]: place } } };
}

/** Beyond the bounds it was not read to its end: then it may be no JSON, which the client says better. */
function parsed(text: string): unknown {
  try {
    return parseExactly(text);
  } catch {
    return undefined;
  }
}
