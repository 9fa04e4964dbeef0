/** Names of tools as each format allows them: a legal name stays, any other gets a legal part and a hash of the whole. */
import { sha256Hex } from '../../shared/digest.ts';

export interface NameRule {
  isLegal: (name: string) => boolean;
  maxLength: number;
}

/** OpenAI (chat and responses) and Anthropic. */
export const FUNCTION_NAMES: NameRule = {
  isLegal: (name) => /^[a-zA-Z0-9_-]{1,64}$/.test(name),
  maxLength: 64,
};
/** Like the others, but a name does not begin with a digit or a dash. */
export const GEMINI_NAMES: NameRule = {
  isLegal: (name) => /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/.test(name),
  maxLength: 64,
};
export const MCP_NAMES: NameRule = {
  isLegal: (name) => /^[a-zA-Z0-9_.-]{1,128}$/.test(name),
  maxLength: 128,
};
export const IDENTIFIERS: NameRule = {
  isLegal: (name) => isIdentifier(name) && name.length <= 64,
  maxLength: 64,
};

/** Words that TypeScript or Python does not take as the name of a function. */
const RESERVED = new Set(
  (
    'and as assert async await break case catch class const continue debugger def default del delete do elif else ' +
    'enum except export extends False false finally for from function global if implements import in instanceof ' +
    'interface is lambda let new None nonlocal not null or package pass private protected public raise return ' +
    'static super switch this throw True true try typeof var void while with yield eval arguments'
  ).split(' '),
);

export function isIdentifier(text: string): boolean {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(text) && !RESERVED.has(text);
}

const HASH_LENGTHS = [10, 20, 40];
/** Begins a name of which nothing legal is left. */
const NAMELESS = 'tool';

/**
 * Exported name by original name. It follows from the name alone, so it is the same in every list and after every
 * restart; a longer hash is taken only where two names would meet.
 */
export async function exportedNames(
  names: readonly string[],
  rule: NameRule,
): Promise<ReadonlyMap<string, string>> {
  const unique = [...new Set(names)].toSorted();
  const taken = new Set(unique.filter(rule.isLegal));
  const exported = new Map<string, string>();
  for (const name of unique) {
    if (rule.isLegal(name)) exported.set(name, name);
    else exported.set(name, await legalName(name, rule, taken));
  }
  return exported;
}

async function legalName(name: string, rule: NameRule, taken: Set<string>): Promise<string> {
  const hash = await sha256Hex(name);
  for (const length of HASH_LENGTHS) {
    const candidate = `${stemOf(name, rule.maxLength - length - 1)}_${hash.slice(0, length)}`;
    if (taken.has(candidate)) continue;
    taken.add(candidate);
    return candidate;
  }
  throw new Error(`no name is left for the tool ${JSON.stringify(name)}`);
}

function stemOf(name: string, maxLength: number): string {
  const letters = name
    .normalize('NFKD')
    .replaceAll(/\p{Mark}/gu, '')
    .replaceAll(/[^a-zA-Z0-9]+/g, '_')
    .replaceAll(/^[_0-9]+|_+$/g, '')
    .slice(0, maxLength);
  return letters === '' ? NAMELESS : letters;
}
