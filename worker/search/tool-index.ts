/**
 * An index of tools by what they are called and say of themselves: BM25 over fields, filtered before it is ranked. It
 * is a value of memory that follows each change; whoever has the tools makes it again.
 */
import { queryClauses } from './query.ts';
import { type Hit, Ranking } from './ranking.ts';
import { GAP, LOOKED_AT, secondLook, type Text } from './second-look.ts';
import { stemOf } from './stem.ts';
import { trigramsOf, wordsOf } from './words.ts';

export interface IndexedTool {
  name: string;
  title: string;
  description: string;
  category: string;
  /** Names and descriptions of its arguments, one after the other. */
  parameters: string;
}

/** What a word weighs in each field, and how much a long field thins it out. */
const FIELDS = [
  { weight: 1.5, thinning: 0.4 },
  { weight: 1, thinning: 0.5 },
  { weight: 1, thinning: 0.6 },
  { weight: 0.2, thinning: 0 },
] as const;
const NAME = 0;
const DESCRIPTION = 1;
const SATURATION = 0.8;
/** Below 1, what is rare counts less above what is common. */
const RARITY_POWER = 0.8;
/** Counts of a word in the fields share one number. */
const BITS = 6;
const MAX_COUNT = 2 ** BITS - 1;
/** Of ten thousand tools in ordinary words there are some ten thousand; more are no words, and would only take memory. */
const MAX_TERMS = 100_000;
/** Share of removed tools at which the index is made anew. */
const MAX_GONE_SHARE = 0.3;

const NO_TEXT: Text = new Uint32Array();

interface Postings {
  /** Of the word, from 1. */
  number: number;
  slots: number[];
  counts: number[];
}

export class ToolIndex {
  #terms = new Map<string, Postings>();
  /** By their numbers. */
  #postings: (Postings | undefined)[] = [undefined];
  #trigrams = new Map<string, string[]>();
  #texts: Text[] = [];
  #ids: (string | undefined)[] = [];
  #lengths: number[][] = FIELDS.map(() => []);
  #totals: number[] = FIELDS.map(() => 0);
  readonly #slots = new Map<string, number>();
  readonly #tools = new Map<string, IndexedTool>();

  get size(): number {
    return this.#slots.size;
  }

  /** By their ids. */
  get tools(): ReadonlyMap<string, IndexedTool> {
    return this.#tools;
  }

  /** Adds a tool, in the place of the one with the same id. */
  put(id: string, tool: IndexedTool): void {
    this.remove(id);
    this.#tools.set(id, tool);
    this.#write(id, tool);
  }

  remove(id: string): void {
    const slot = this.#slots.get(id);
    if (slot === undefined) return;
    this.#slots.delete(id);
    this.#tools.delete(id);
    this.#ids[slot] = undefined;
    this.#texts[slot] = NO_TEXT;
    for (const [field, lengths] of this.#lengths.entries()) {
      this.#totals[field] = (this.#totals[field] ?? 0) - (lengths[slot] ?? 0);
    }
    if (this.#ids.length - this.#slots.size > Math.max(64, this.#ids.length * MAX_GONE_SHARE))
      this.#compact();
  }

  /** Best first; only tools that are accepted are looked at. */
  search(query: string, { limit, accepts }: { limit: number; accepts: (id: string) => boolean }): Hit[] {
    const clauses = queryClauses(query, {
      isKnown: (term) => this.#terms.has(term),
      similar: (word) => this.#similar(word),
    });
    const ranking = new Ranking(this.#ids, accepts);
    for (const clause of clauses) {
      for (const { stem, alternatives, isBeside } of clause) {
        const takes = (slot: number) => ranking.takes(slot) && (!isBeside || ranking.isInClause(slot));
        for (const { term, share } of alternatives) this.#score(term, share, { ranking, takes });
        ranking.endTerm(stem);
      }
      ranking.endClause();
    }
    const best = ranking.best(Math.max(limit, LOOKED_AT), (slot) => this.#lengths[NAME]?.[slot] ?? 0);
    const looked = {
      textOf: (id: string) => this.#texts[this.#slots.get(id) ?? -1] ?? NO_TEXT,
      rarityOf: (word: number) => this.#rarityOf(this.#postings[word]?.slots.length),
      clauses: clauses.map((clause) => clause.map(({ stem }) => this.#terms.get(stem)?.number ?? GAP)),
      highestRarity: this.#rarityOf(1),
    };
    return secondLook(best, looked).slice(0, limit);
  }

  #rarityOf(count: number | undefined): number {
    if (count === undefined) return 0;
    const documents = Math.max(this.#slots.size, count);
    return Math.log(1 + (documents - count + 0.5) / (count + 0.5)) ** RARITY_POWER;
  }

  #score(
    term: string,
    share: number,
    { ranking, takes }: { ranking: Ranking; takes: (slot: number) => boolean },
  ): void {
    const postings = this.#terms.get(term);
    if (postings === undefined) return;
    const { slots, counts } = postings;
    const rarity = this.#rarityOf(slots.length);
    const averages = this.#totals.map((total) => total / Math.max(1, this.#slots.size) || 1);
    for (let at = 0; at < slots.length; at += 1) {
      const slot = slots[at] ?? 0;
      if (!takes(slot)) continue;
      const packed = counts[at] ?? 0;
      let frequency = 0;
      for (let field = 0; field < FIELDS.length; field += 1) {
        const count = (packed >> (field * BITS)) & MAX_COUNT;
        if (count === 0) continue;
        const { weight, thinning } = FIELDS[field] ?? FIELDS[NAME];
        const length = (this.#lengths[field]?.[slot] ?? 0) / (averages[field] ?? 1);
        frequency += (weight * count) / (1 - thinning + thinning * length);
      }
      const score = (share * rarity * frequency * (SATURATION + 1)) / (SATURATION + frequency);
      ranking.found(slot, score, (packed & MAX_COUNT) > 0);
    }
  }

  /** Words of the index that look like one that it does not have. */
  #similar(word: string): { term: string; likeness: number }[] {
    const parts = trigramsOf(word);
    const shared = new Map<string, number>();
    for (const part of new Set(parts)) {
      for (const term of this.#trigrams.get(part) ?? []) shared.set(term, (shared.get(term) ?? 0) + 1);
    }
    return [...shared].map(([term, count]) => ({
      term,
      likeness: (2 * count) / (parts.length + trigramsOf(term).length),
    }));
  }

  #write(id: string, tool: IndexedTool): void {
    const slot = this.#ids.length;
    this.#ids.push(id);
    this.#slots.set(id, slot);
    const texts = [tool.name, `${tool.title} ${tool.description}`, tool.parameters, tool.category];
    const counted = new Map<string, number>();
    const written: string[] = [];
    for (const [field, text] of texts.entries()) {
      const words = wordsOf(text);
      this.#lengths[field]?.push(words.length);
      this.#totals[field] = (this.#totals[field] ?? 0) + words.length;
      if (field === DESCRIPTION) written.push('');
      for (const word of words) {
        const term = stemOf(word);
        if (field <= DESCRIPTION) written.push(term);
        const packed = counted.get(term) ?? 0;
        const count = (packed >> (field * BITS)) & MAX_COUNT;
        if (count < MAX_COUNT) counted.set(term, packed + 2 ** (field * BITS));
      }
    }
    for (const [term, packed] of counted) {
      const postings = this.#terms.get(term) ?? this.#newTerm(term);
      if (postings === undefined) continue;
      postings.slots.push(slot);
      postings.counts.push(packed);
    }
    this.#texts.push(Uint32Array.from(written, (term) => this.#terms.get(term)?.number ?? GAP));
  }

  #newTerm(term: string): Postings | undefined {
    if (this.#terms.size >= MAX_TERMS) return undefined;
    const postings = { number: this.#postings.length, slots: [], counts: [] };
    this.#postings.push(postings);
    this.#terms.set(term, postings);
    for (const part of new Set(trigramsOf(term))) {
      const known = this.#trigrams.get(part);
      if (known === undefined) this.#trigrams.set(part, [term]);
      else known.push(term);
    }
    return postings;
  }

  #compact(): void {
    const tools = [...this.#tools];
    this.#terms = new Map();
    this.#postings = [undefined];
    this.#texts = [];
    this.#trigrams = new Map();
    this.#ids = [];
    this.#lengths = FIELDS.map(() => []);
    this.#totals = FIELDS.map(() => 0);
    this.#slots.clear();
    for (const [id, tool] of tools) this.#write(id, tool);
  }
}
