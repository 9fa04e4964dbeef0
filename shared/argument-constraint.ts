/** What an argument of a call may be, for whoever is held to it: checked by the edge, and again by the host from the grant. */
import * as z from 'zod';
import type { Violation } from './errors.ts';
import { canonicalHost, coversHost, EgressRuleTextSchema, matchesRule, parseEgressRule } from './network.ts';

const KINDS = ['path_prefixes', 'hosts', 'one_of'] as const;
const ONE_KIND = `exactly one of ${KINDS.join(', ')}`;
/** What bytes that are no UTF-8 read as: no folder that is named may be met by them. */
const REPLACEMENT = '\ufffd';
const MAX_SHOWN_CHARACTERS = 200;

/** Absolute and in its shortest spelling, so that it means the same to whoever compares it. */
const FolderSchema = z
  .string()
  .max(1_024)
  .refine((text) => text === absolutePath(text, '/') && !text.includes(REPLACEMENT), {
    message: 'an absolute path without `.`, `..`, doubled slashes and a slash at its end',
  });

export const CONSTRAINT_SHAPE = {
  argument: z
    .string()
    .max(256)
    .regex(/^(?:\/(?:[^~/]|~[01])*)+$/)
    .describe('JSON pointer into the arguments. Of a list each entry is looked at.'),
  required: z.boolean().default(true).describe('`false`: a call may leave it out.'),
  path_prefixes: z
    .array(FolderSchema)
    .min(1)
    .max(32)
    .optional()
    .describe('A path that is one of these folders, or below one.'),
  hosts: z
    .array(EgressRuleTextSchema)
    .min(1)
    .max(32)
    .optional()
    .describe('A URL or a host that one of these covers, as `network.allow` of a session has them.'),
  one_of: z
    .array(z.union([z.string().max(1_024), z.number(), z.boolean(), z.null()]))
    .min(1)
    .max(64)
    .optional()
    .describe('One of these values.'),
};

const UnrefinedSchema = z.strictObject(CONSTRAINT_SHAPE);
export type ArgumentConstraint = z.infer<typeof UnrefinedSchema>;

export function hasOneKind(constraint: Pick<ArgumentConstraint, (typeof KINDS)[number]>): boolean {
  return KINDS.filter((kind) => constraint[kind] !== undefined).length === 1;
}

export const ArgumentConstraintSchema = UnrefinedSchema.refine(hasOneKind, { message: ONE_KIND });

/** `workdir`: where a path that is not absolute begins; null where that is the tool's own affair, and it is refused. */
export interface ConstraintPlace {
  root: string;
  workdir: string | null;
}

export function constraintViolations(
  constraints: readonly ArgumentConstraint[],
  args: unknown,
  place: ConstraintPlace,
): Violation[] {
  return constraints.flatMap((constraint) => {
    const keys = constraint.argument.slice(1).split('/').map(unescaped);
    const path = [place.root, ...keys].filter((part) => part !== '').join('.');
    const { found, value } = valueAt(args, keys);
    if (found === 'nothing') return constraint.required ? [violation(path, undefined)] : [];
    if (found === 'elsewhere') return [violation(path, value)];
    if (!Array.isArray(value)) return isAllowed(constraint, value, place) ? [] : [violation(path, value)];
    // Nobody knows what a tool takes in the place of a list of none.
    if (value.length === 0 && constraint.required) return [violation(path, value)];
    return value.flatMap((entry, index) =>
      isAllowed(constraint, entry, place) ? [] : [violation(`${path}.${index}`, entry)],
    );

    function violation(at: string, received: unknown): Violation {
      return { path: at, expected: expectedOf(constraint), received: shown(received) };
    }
  });
}

/** In words, for who makes the call. */
export function expectedOf({ path_prefixes, hosts, one_of }: ArgumentConstraint): string {
  if (path_prefixes !== undefined) {
    return `a path without .. that is ${path_prefixes.join(' or ')}, or below it`;
  }
  if (hosts !== undefined) return `a URL or host of ${hosts.join(', ')}`;
  return `one of ${(one_of ?? []).map((value) => JSON.stringify(value)).join(', ')}`;
}

function isAllowed(
  { path_prefixes, hosts, one_of }: ArgumentConstraint,
  value: unknown,
  { workdir }: ConstraintPlace,
): boolean {
  if (path_prefixes !== undefined) return typeof value === 'string' && isBelow(value, path_prefixes, workdir);
  if (hosts !== undefined) return typeof value === 'string' && isOfHosts(value, hosts);
  return (one_of ?? []).some((allowed) => allowed === value);
}

function isBelow(text: string, folders: readonly string[], workdir: string | null): boolean {
  const path = absolutePath(text, workdir);
  if (path === undefined) return false;
  return folders.some((folder) => folder === '/' || path === folder || path.startsWith(`${folder}/`));
}

/**
 * Undefined where the text does not say by itself where it leads: a `..` behind a link goes up from where the link leads,
 * not from where it stands.
 */
function absolutePath(text: string, workdir: string | null): string | undefined {
  if (text === '' || text.includes('\0')) return undefined;
  const isAbsolute = text.startsWith('/');
  if (!isAbsolute && workdir === null) return undefined;
  const names = (isAbsolute ? text : `${workdir}/${text}`).split('/');
  if (names.includes('..')) return undefined;
  return `/${names.filter((name) => name !== '' && name !== '.').join('/')}`;
}

const DEFAULT_PORTS: Readonly<Record<string, number>> = { http: 80, ws: 80, https: 443, wss: 443 };
/** What readers of URLs disagree about is none: user names, backslashes, white space, escapes in the host. */
const URL_TEXT =
  /^(https?|wss?):\/\/(\[[0-9a-fA-F:.]+\]|[^\s:/?#@%\\[\]]+)(?::(\d{1,5}))?(?:[/?#][^\s\\]*)?$/i;
const HOST_TEXT = /^(\[[0-9a-fA-F:.]+\]|[^\s:/?#@%\\[\]]+)(?::(\d{1,5}))?$/;

function isOfHosts(text: string, hosts: readonly string[]): boolean {
  const url = URL_TEXT.exec(text);
  const [hostText, portText] = (url === null ? HOST_TEXT.exec(text)?.slice(1) : url.slice(2)) ?? [];
  const host = hostText === undefined ? undefined : canonicalHost(hostText);
  if (host === undefined) return false;
  const port = portText === undefined ? DEFAULT_PORTS[url?.[1]?.toLowerCase() ?? ''] : Number(portText);
  return hosts.some((rule) => {
    const parsed = parseEgressRule(rule);
    if (parsed === undefined) return false;
    // A host alone says nothing of a port, so a rule for one port cannot hold for it.
    if (port === undefined) return parsed.port === null && coversHost(parsed, host);
    return matchesRule(parsed, { ...host, port });
  });
}

/** `elsewhere`: on the way to it is something that has no place for it, and the tool may look for it there. */
function valueAt(
  args: unknown,
  keys: readonly string[],
): { found: 'value' | 'nothing' | 'elsewhere'; value: unknown } {
  let value = args;
  for (const key of keys) {
    if (!isObject(value)) return { found: 'elsewhere', value };
    const isThere = Object.hasOwn(value, key);
    if (!isThere && Array.isArray(value) && value.length > 0) return { found: 'elsewhere', value };
    if (!isThere || value[key] === undefined) return { found: 'nothing', value: undefined };
    value = value[key];
  }
  return { found: 'value', value };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function unescaped(key: string): string {
  return key.replaceAll('~1', '/').replaceAll('~0', '~');
}

function shown(value: unknown): string {
  return (JSON.stringify(value) ?? 'nothing').slice(0, MAX_SHOWN_CHARACTERS);
}
