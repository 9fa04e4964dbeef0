/**
 * JSON as RFC 8259 has it, and less: bounded depth, no key twice, no `__proto__`, no integer that a double would
 * round, no half of a surrogate pair. `JSON.parse` lets all of these through, and two readers of one text would then see
 * different values.
 */
import { MAX_INTEGER_DIGITS, parseExactly } from './exact-integers.ts';

export interface JsonBounds {
  maxDepth: number;
  /** Members and elements of the whole text. */
  maxValues: number;
}

export interface JsonFault {
  ok: false;
  kind: 'syntax' | 'bounds' | 'key' | 'number' | 'text';
  expected: string;
  /** Path of the value that holds the fault, for example `arguments.items.3`. */
  path: string;
  /** UTF-16 offset from 0. */
  position: number;
}

export type StrictJson = { ok: true; value: unknown } | JsonFault;

type JsonPath = readonly (string | number)[];

/** Integers that a double would round are faults, unless they stand where they are kept: there they are bigints. */
export function parseStrictJson(
  text: string,
  bounds: JsonBounds,
  isKept: (path: JsonPath) => boolean = () => false,
): StrictJson {
  return faultOf(new Scanner(text, bounds, { isKept })) ?? { ok: true, value: parseExactly(text) };
}

/**
 * The first number of a text at one of the asked paths that a double does not hold as it is written. What `JSON.parse` lets
 * through is let through; a fault of syntax or bounds is one too.
 */
export function inexactNumber(
  text: string,
  bounds: JsonBounds,
  isAsked: (path: JsonPath) => boolean,
): JsonFault | undefined {
  return faultOf(new Scanner(text, bounds, { isAsked }));
}

/** Line and column, both from 1, of an offset. */
export function lineAndColumn(text: string, position: number): { line: number; column: number } {
  const before = text.slice(0, position);
  const line = before.split('\n').length;
  return { line, column: position - before.lastIndexOf('\n') };
}

function faultOf(scanner: Scanner): JsonFault | undefined {
  try {
    scanner.document();
    return undefined;
  } catch (error: unknown) {
    if (error instanceof Fault) return { ...error.fault, ok: false };
    throw error;
  }
}

class Fault extends Error {
  readonly fault: Omit<JsonFault, 'ok'>;

  constructor(fault: Omit<JsonFault, 'ok'>) {
    super(fault.expected);
    this.fault = fault;
  }
}

// Sticky patterns let the engine skip long strings at native speed.
const WHITESPACE = /[ \t\n\r]*/y;
// Everything from the space on but the quote and the backslash.
const PLAIN_CHARACTERS = /[ !#-[\]-\uffff]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const LITERAL = /true|false|null/y;

class Scanner {
  readonly #text: string;
  readonly #bounds: JsonBounds;
  readonly #path: (string | number)[] = [];
  /** Where only numbers are looked at, and which; undefined where everything is strict. */
  readonly #isAsked: ((path: JsonPath) => boolean) | undefined;
  readonly #isKept: (path: JsonPath) => boolean;
  #at = 0;
  #values = 0;

  constructor(
    text: string,
    bounds: JsonBounds,
    {
      isAsked,
      isKept = () => false,
    }: { isAsked?: (path: JsonPath) => boolean; isKept?: (path: JsonPath) => boolean },
  ) {
    this.#text = text;
    this.#bounds = bounds;
    this.#isAsked = isAsked;
    this.#isKept = isKept;
  }

  document(): void {
    this.#skip(WHITESPACE);
    this.#value(0);
    this.#skip(WHITESPACE);
    if (this.#at < this.#text.length) this.#fail('syntax', 'the end of the text');
  }

  #value(depth: number): void {
    this.#values += 1;
    if (this.#values > this.#bounds.maxValues) {
      this.#fail('bounds', `at most ${this.#bounds.maxValues} values`);
    }
    const first = this.#text[this.#at];
    if (first === '{' || first === '[') {
      if (depth >= this.#bounds.maxDepth) {
        this.#fail('bounds', `at most ${this.#bounds.maxDepth} levels of nesting`);
      }
      if (first === '{') this.#object(depth + 1);
      else this.#array(depth + 1);
    } else if (first === '"') this.#string();
    else if (first === '-' || (first !== undefined && first >= '0' && first <= '9')) this.#number();
    else if (this.#skip(LITERAL) === '') this.#fail('syntax', 'a JSON value');
  }

  #object(depth: number): void {
    const seen = new Set<string>();
    this.#at += 1;
    this.#skip(WHITESPACE);
    if (this.#text[this.#at] === '}') {
      this.#at += 1;
      return;
    }
    for (;;) {
      if (this.#text[this.#at] !== '"') this.#fail('syntax', 'a key in double quotes');
      const keyAt = this.#at;
      const key = this.#string();
      if (this.#isAsked === undefined) this.#newKey(key, seen, keyAt);
      this.#skip(WHITESPACE);
      this.#character(':', '":"');
      this.#path.push(key);
      this.#skip(WHITESPACE);
      this.#value(depth);
      this.#path.pop();
      if (this.#endOf('}', '"," or "}"')) return;
    }
  }

  #newKey(key: string, seen: Set<string>, keyAt: number): void {
    if (seen.has(key)) this.#fail('key', `the key ${JSON.stringify(key.slice(0, 64))} once`, keyAt);
    if (key === '__proto__') this.#fail('key', 'another key than __proto__', keyAt);
    seen.add(key);
  }

  #array(depth: number): void {
    this.#at += 1;
    this.#skip(WHITESPACE);
    if (this.#text[this.#at] === ']') {
      this.#at += 1;
      return;
    }
    for (let index = 0; ; index += 1) {
      this.#path.push(index);
      this.#value(depth);
      this.#path.pop();
      if (this.#endOf(']', '"," or "]"')) return;
    }
  }

  /** After a member: whether the container closed; else the comma is behind us. */
  #endOf(close: string, expected: string): boolean {
    this.#skip(WHITESPACE);
    const next = this.#text[this.#at];
    if (next !== close && next !== ',') this.#fail('syntax', expected);
    this.#at += 1;
    if (next === close) return true;
    this.#skip(WHITESPACE);
    return false;
  }

  #string(): string {
    const start = this.#at;
    this.#at += 1;
    let plain = true;
    for (;;) {
      this.#skip(PLAIN_CHARACTERS);
      const next = this.#text[this.#at];
      if (next === '"') break;
      if (next !== '\\' || this.#skip(ESCAPE) === '') {
        this.#fail('syntax', next === undefined ? 'the end of the string' : 'a valid character or escape');
      }
      plain = false;
    }
    this.#at += 1;
    if (plain) return this.#text.slice(start + 1, this.#at - 1);
    const value = String(JSON.parse(this.#text.slice(start, this.#at)));
    // As UTF-8, which it becomes on its way, it would be another text.
    if (this.#isAsked === undefined && !value.isWellFormed())
      this.#fail('text', 'text without half of a surrogate pair', start);
    return value;
  }

  #number(): void {
    const start = this.#at;
    const digits = this.#skip(NUMBER);
    if (digits === '') this.#fail('syntax', 'a number');
    if (this.#isAsked?.(this.#path) === false) return;
    const number = Number(digits);
    if (!/^-?\d+$/.test(digits)) {
      if (!Number.isFinite(number)) this.#fail('number', 'a number within the range of a double', start);
    } else if (!Number.isSafeInteger(number)) {
      if (!this.#isKept(this.#path))
        this.#fail('number', 'an integer within ±(2^53 - 1); send larger ones as strings', start);
      if (digits.length > MAX_INTEGER_DIGITS)
        this.#fail('number', `an integer of at most ${MAX_INTEGER_DIGITS} digits`, start);
    }
  }

  #character(character: string, expected: string): void {
    if (this.#text[this.#at] !== character) this.#fail('syntax', expected);
    this.#at += 1;
  }

  #skip(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#text)?.[0] ?? '';
    this.#at += match.length;
    return match;
  }

  #fail(kind: JsonFault['kind'], expected: string, position = this.#at): never {
    throw new Fault({ kind, expected, position, path: this.#path.join('.') });
  }
}
