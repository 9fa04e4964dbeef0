/**
 * Takes a secret out of what an upstream sends back: a service that shows a request's headers would otherwise show it to
 * the guest. Each is replaced by as many asterisks, so that lengths stay true.
 */
import { Transform, type TransformCallback } from 'node:stream';
import type { InjectedHeader } from '../../shared/network.ts';

/** Shorter words are names of schemes, and in every text by chance. */
const MIN_WORD_CHARS = 8;

/** What is looked for: the words of each value, for a service may show a token without its scheme. */
function needlesOf(inject: readonly InjectedHeader[]): string[] {
  return inject.flatMap(({ secret }) => {
    const words = secret.split(/[\s,;]+/).filter((word) => word.length >= MIN_WORD_CHARS);
    return (words.length > 0 ? words : [secret]).flatMap(spellingsOf);
  });
}

/** As it is, and as JSON (some writers put a backslash before each slash), addresses, forms and base64 write it. */
function spellingsOf(word: string): string[] {
  const escaped = JSON.stringify(word).slice(1, -1);
  const address = encodeURIComponent(word);
  const lower = address.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase());
  const plain = [word, escaped, escaped.replaceAll('/', '\\/'), address, lower];
  return [...new Set([...plain, ...base64Of(word)])];
}

/** By how many bytes stand before it, a text is written in one of three ways; where others touch it, its edges differ. */
function base64Of(word: string): string[] {
  const bytes = Buffer.from(word);
  const pieces = [0, 1, 2].map((before) => {
    const written = Buffer.concat([Buffer.alloc(before), bytes])
      .toString('base64')
      .replace(/=+$/, '');
    const isCut = (before + bytes.length) % 3 !== 0;
    return written.slice(before === 0 ? 0 : before + 1, isCut ? -1 : undefined);
  });
  const long = pieces.filter((piece) => piece.length >= MIN_WORD_CHARS);
  return [...long, ...long.map((piece) => piece.replaceAll('+', '-').replaceAll('/', '_'))];
}

export class SecretFilter {
  readonly #needles: readonly string[];

  constructor(inject: readonly InjectedHeader[]) {
    // The longest first: one may be a part of another.
    this.#needles = needlesOf(inject).toSorted((a, b) => b.length - a.length);
  }

  get isIdle(): boolean {
    return this.#needles.length === 0;
  }

  /** Latin-1 is bytes as characters: headers come so, and a body is read so here. */
  readonly hide = (text: string): string => {
    let hidden = text;
    for (const needle of this.#needles) hidden = hidden.replaceAll(needle, '*'.repeat(needle.length));
    return hidden;
  };

  body(): Transform {
    let held: Buffer = Buffer.alloc(0);
    const transform = (chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void => {
      const bytes = this.#hideBytes(held.length === 0 ? chunk : Buffer.concat([held, chunk]));
      const keep = this.#beginning(bytes.toString('latin1', Math.max(0, bytes.length - this.#longest)));
      // A copy: the rest of the chunk is not to live on for a few bytes of it.
      held = Buffer.from(bytes.subarray(bytes.length - keep));
      done(null, bytes.subarray(0, bytes.length - keep));
    };
    return new Transform({ transform, flush: (done) => done(null, held) });
  }

  #hideBytes(bytes: Buffer): Buffer {
    if (!this.#needles.some((needle) => bytes.includes(needle, 0, 'latin1'))) return bytes;
    return Buffer.from(this.hide(bytes.toString('latin1')), 'latin1');
  }

  /** How many of the last characters may be the beginning of a secret whose rest is yet to come. */
  #beginning(tail: string): number {
    let longest = 0;
    for (const needle of this.#needles) {
      for (let length = Math.min(needle.length - 1, tail.length); length > longest; length--) {
        if (tail.endsWith(needle.slice(0, length))) longest = length;
      }
    }
    return longest;
  }

  get #longest(): number {
    return this.#needles[0]?.length ?? 0;
  }
}
