/**
 * The structure of a regular expression of ECMAScript: what repeats, what alternates, what is asserted. The single
 * characters in it stay the engine's own expressions: for one character there is nothing to backtrack over.
 */
export class PatternFault extends Error {
  override name = 'PatternFault';
}

export type PatternNode =
  | { kind: 'character'; literal: string }
  /** One character that this expression takes. */
  | { kind: 'set'; source: string }
  | { kind: 'sequence'; parts: PatternNode[] }
  | { kind: 'choice'; options: PatternNode[] }
  | { kind: 'repeat'; part: PatternNode; min: number; max: number }
  | { kind: 'start' }
  | { kind: 'end' }
  | { kind: 'boundary'; negated: boolean }
  | { kind: 'look'; negated: boolean; part: PatternNode };

export interface ParsedPattern {
  node: PatternNode;
  /** Reads code points; without it code units, as patterns that are only legal in the older mode are read. */
  unicode: boolean;
}

const MAX_PATTERN_CHARACTERS = 4_096;
const MAX_GROUP_DEPTH = 100;
const EMPTY: PatternNode = { kind: 'sequence', parts: [] };

export function parsePattern(source: string): ParsedPattern {
  if (source.length > MAX_PATTERN_CHARACTERS) {
    throw new PatternFault(`at most ${MAX_PATTERN_CHARACTERS} characters`);
  }
  const unicode = modeOf(source);
  return { node: new Parser(source, unicode).whole(), unicode };
}

/** The engine says whether it is an expression at all, and in which mode. */
function modeOf(source: string): boolean {
  for (const flags of ['u', '']) {
    try {
      new RegExp(source, flags);
      return flags === 'u';
    } catch {
      // Perhaps one of the older mode.
    }
  }
  throw new PatternFault('a regular expression of ECMAScript');
}

class Parser {
  readonly #source: string;
  readonly #unicode: boolean;
  #at = 0;
  #depth = 0;

  constructor(source: string, unicode: boolean) {
    this.#source = source;
    this.#unicode = unicode;
  }

  whole(): PatternNode {
    const node = this.#choice();
    if (this.#at < this.#source.length) throw new PatternFault('balanced parentheses');
    return node;
  }

  #choice(): PatternNode {
    this.#depth += 1;
    if (this.#depth > MAX_GROUP_DEPTH)
      throw new PatternFault(`at most ${MAX_GROUP_DEPTH} groups in each other`);
    const options = [this.#sequence()];
    while (this.#take('|')) options.push(this.#sequence());
    this.#depth -= 1;
    return options.length === 1 ? (options[0] ?? EMPTY) : { kind: 'choice', options };
  }

  #sequence(): PatternNode {
    const parts: PatternNode[] = [];
    while (this.#at < this.#source.length && !this.#ahead('|') && !this.#ahead(')')) {
      parts.push(this.#repeated(this.#term()));
    }
    return { kind: 'sequence', parts };
  }

  #term(): PatternNode {
    if (this.#take('^')) return { kind: 'start' };
    if (this.#take('$')) return { kind: 'end' };
    if (this.#take('.')) return { kind: 'set', source: '.' };
    if (this.#ahead('(')) return this.#group();
    if (this.#ahead('[')) return { kind: 'set', source: this.#set() };
    if (this.#ahead('\\')) return this.#escape();
    return { kind: 'character', literal: this.#character() };
  }

  #character(): string {
    const code = this.#source.codePointAt(this.#at) ?? 0;
    const literal = this.#unicode ? String.fromCodePoint(code) : (this.#source[this.#at] ?? '');
    this.#at += literal.length;
    return literal;
  }

  #group(): PatternNode {
    const opening = /\((?:\?(?::|=|!|<=|<!|<[^>]*>|[a-z-]*:))?/y;
    opening.lastIndex = this.#at;
    const text = opening.exec(this.#source)?.[0] ?? '(';
    if (text === '(?<=' || text === '(?<!') throw new PatternFault('no look-behind');
    if (/^\(\?[a-z-]+:$/.test(text)) throw new PatternFault('no flags within a pattern');
    this.#at += text.length;
    const part = this.#choice();
    if (!this.#take(')')) throw new PatternFault('balanced parentheses');
    if (text === '(?=' || text === '(?!') return { kind: 'look', negated: text === '(?!', part };
    return part;
  }

  /** From the bracket to its end, as it stands. */
  #set(): string {
    const set = /\[(?:\\[\s\S]|[^\]\\])*\]/y;
    return this.#matched(set, 'a closed set');
  }

  #escape(): PatternNode {
    const next = this.#source[this.#at + 1] ?? '';
    if (next === 'b' || next === 'B') {
      this.#at += 2;
      return { kind: 'boundary', negated: next === 'B' };
    }
    if (/[1-9]/.test(next) || (next === 'k' && this.#unicode)) throw new PatternFault('no back-references');
    const escaped = this.#unicode
      ? /\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[a-zA-Z]|[pP]\{[^}]*\}|[\s\S])/y
      : /\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[a-zA-Z]|[\s\S])/y;
    return { kind: 'set', source: this.#matched(escaped, 'an escape') };
  }

  #repeated(part: PatternNode): PatternNode {
    const quantifier = /(?:([*+?])|\{(\d+)(,?)(\d*)\})\??/y;
    quantifier.lastIndex = this.#at;
    const match = quantifier.exec(this.#source);
    if (match === null) return part;
    this.#at += match[0].length;
    const [, sign, least, comma, most] = match;
    if (sign !== undefined) {
      return {
        kind: 'repeat',
        part,
        min: sign === '+' ? 1 : 0,
        max: sign === '?' ? 1 : Number.POSITIVE_INFINITY,
      };
    }
    const min = Number(least);
    if (comma === '') return { kind: 'repeat', part, min, max: min };
    return { kind: 'repeat', part, min, max: most === '' ? Number.POSITIVE_INFINITY : Number(most) };
  }

  #matched(expression: RegExp, expected: string): string {
    expression.lastIndex = this.#at;
    const text = expression.exec(this.#source)?.[0];
    if (text === undefined) throw new PatternFault(expected);
    this.#at += text.length;
    return text;
  }

  #ahead(character: string): boolean {
    return this.#source[this.#at] === character;
  }

  #take(character: string): boolean {
    if (!this.#ahead(character)) return false;
    this.#at += 1;
    return true;
  }
}
