/** The scores of one search, by the slots of the index. */
export interface Hit {
  id: string;
  score: number;
}

/** What a tool gains at most because the question has the words of its name. */
const NAME_BONUS = 0.25;
/** A name of one word is easily met by chance. */
const MIN_NAME_WORDS = 2;

/** What fitting the whole question counts, against fitting one of its clauses best. */
const WHOLE_SHARE = 0.5;
/** How far a clause of few or of common words counts as much as the others. */
const CLAUSE_BALANCE = 0.7;

interface Scored {
  slots: number[];
  scores: number[];
}

interface Clause extends Scored {
  best: number;
}

export class Ranking {
  readonly #ids: readonly (string | undefined)[];
  readonly #accepts: (id: string) => boolean;
  readonly #scores: Float64Array;
  /** Of the word that is being looked up. */
  readonly #best: Float64Array;
  readonly #verdicts: Uint8Array;
  readonly #namedWords: Uint16Array;
  readonly #found: number[] = [];
  readonly #terms = new Map<string, Scored>();
  readonly #clauses: Clause[] = [];
  /** Of the clause whose words are being looked up. */
  readonly #clauseScores: Float64Array;
  #ofClause: number[] = [];
  #ofTerm: number[] = [];
  #named = new Set<number>();

  constructor(ids: readonly (string | undefined)[], accepts: (id: string) => boolean) {
    this.#ids = ids;
    this.#accepts = accepts;
    this.#scores = new Float64Array(ids.length);
    this.#best = new Float64Array(ids.length);
    this.#clauseScores = new Float64Array(ids.length);
    this.#verdicts = new Uint8Array(ids.length);
    this.#namedWords = new Uint16Array(ids.length);
  }

  /** Asked once for each tool, before anything is reckoned. */
  takes(slot: number): boolean {
    const known = this.#verdicts[slot];
    if (known !== UNKNOWN) return known === TAKEN;
    const id = this.#ids[slot];
    const isTaken = id !== undefined && this.#accepts(id);
    this.#verdicts[slot] = isTaken ? TAKEN : LEFT_OUT;
    return isTaken;
  }

  /** Whether a word of the clause that is being looked up has found it. */
  isInClause(slot: number): boolean {
    return (this.#clauseScores[slot] ?? 0) > 0;
  }

  /** Of the ways to write or to say a word only the best counts. */
  found(slot: number, score: number, isInName: boolean): void {
    const before = this.#best[slot] ?? 0;
    if (before === 0) this.#ofTerm.push(slot);
    if (score > before) this.#best[slot] = score;
    if (isInName) this.#named.add(slot);
  }

  /** A word that a clause before had counts in this one too, and once in the whole. */
  endTerm(stem: string): void {
    const known = this.#terms.get(stem);
    const term = known ?? this.#lookedUp();
    if (known === undefined) this.#terms.set(stem, term);
    for (const [at, slot] of term.slots.entries()) {
      const score = term.scores[at] ?? 0;
      const inClause = this.#clauseScores[slot] ?? 0;
      if (inClause === 0) this.#ofClause.push(slot);
      this.#clauseScores[slot] = inClause + score;
      if (known !== undefined) continue;
      const before = this.#scores[slot] ?? 0;
      if (before === 0) this.#found.push(slot);
      this.#scores[slot] = before + score;
    }
  }

  #lookedUp(): Scored {
    const slots = this.#ofTerm;
    const scores = slots.map((slot) => this.#best[slot] ?? 0);
    for (const slot of slots) this.#best[slot] = 0;
    for (const slot of this.#named) this.#namedWords[slot] = (this.#namedWords[slot] ?? 0) + 1;
    this.#ofTerm = [];
    this.#named = new Set();
    return { slots, scores };
  }

  endClause(): void {
    const slots = this.#ofClause;
    const scores = slots.map((slot) => this.#clauseScores[slot] ?? 0);
    const best = scores.reduce((highest, score) => Math.max(highest, score), 0);
    if (best > 0) this.#clauses.push({ slots, scores, best });
    for (const slot of slots) this.#clauseScores[slot] = 0;
    this.#ofClause = [];
  }

  /** What each tool has of the clause that it fits best. */
  #bestClauses(): Float64Array {
    const fits = new Float64Array(this.#ids.length);
    const highest = Math.max(0, ...this.#clauses.map(({ best }) => best));
    for (const { slots, scores, best } of this.#clauses) {
      const balance = (highest / best) ** CLAUSE_BALANCE;
      for (const [at, slot] of slots.entries())
        fits[slot] = Math.max(fits[slot] ?? 0, (scores[at] ?? 0) * balance);
    }
    return fits;
  }

  /** The highest, ties in the order of the ids. */
  best(limit: number, wordsInName: (slot: number) => number): Hit[] {
    const hits: Hit[] = [];
    const fits = this.#bestClauses();
    for (const slot of this.#found) {
      const named = (this.#namedWords[slot] ?? 0) / Math.max(MIN_NAME_WORDS, wordsInName(slot));
      const fit = WHOLE_SHARE * (this.#scores[slot] ?? 0) + (1 - WHOLE_SHARE) * (fits[slot] ?? 0);
      const score = fit * (1 + NAME_BONUS * Math.min(1, named));
      // Thousands are found and a few are wanted: nothing else is put in order.
      const last = hits.at(-1);
      if (hits.length === limit && last !== undefined && score < last.score) continue;
      const hit = { id: this.#ids[slot] ?? '', score };
      hits.splice(placeOf(hit, hits), 0, hit);
      if (hits.length > limit) hits.pop();
    }
    return hits;
  }
}

/** Highest first, ties in the order of the ids. */
export function byScore(a: Hit, b: Hit): number {
  return b.score - a.score || (a.id < b.id ? -1 : 1);
}

/** Where it belongs among those in order. */
function placeOf(hit: Hit, hits: readonly Hit[]): number {
  let from = 0;
  let to = hits.length;
  while (from < to) {
    const middle = Math.floor((from + to) / 2);
    const other = hits[middle];
    if (other !== undefined && byScore(other, hit) < 0) from = middle + 1;
    else to = middle;
  }
  return from;
}

const UNKNOWN = 0;
const TAKEN = 1;
const LEFT_OUT = 2;
