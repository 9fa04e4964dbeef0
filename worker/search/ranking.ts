/** The scores of one search, by the slots of the index. */
export interface Hit {
  id: string;
  score: number;
}

/** What a tool gains at most because the question has the words of its name. */
const NAME_BONUS = 0.25;
/** A name of one word is easily met by chance. */
const MIN_NAME_WORDS = 2;

export class Ranking {
  readonly #ids: readonly (string | undefined)[];
  readonly #accepts: (id: string) => boolean;
  readonly #scores: Float64Array;
  /** Of the word that is being looked up. */
  readonly #best: Float64Array;
  readonly #verdicts: Uint8Array;
  readonly #namedWords: Uint16Array;
  readonly #found: number[] = [];
  #ofTerm: number[] = [];
  #named = new Set<number>();

  constructor(ids: readonly (string | undefined)[], accepts: (id: string) => boolean) {
    this.#ids = ids;
    this.#accepts = accepts;
    this.#scores = new Float64Array(ids.length);
    this.#best = new Float64Array(ids.length);
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

  /** Of the ways to write or to say a word only the best counts. */
  found(slot: number, score: number, isInName: boolean): void {
    const before = this.#best[slot] ?? 0;
    if (before === 0) this.#ofTerm.push(slot);
    if (score > before) this.#best[slot] = score;
    if (isInName) this.#named.add(slot);
  }

  endTerm(): void {
    for (const slot of this.#ofTerm) {
      const before = this.#scores[slot] ?? 0;
      if (before === 0) this.#found.push(slot);
      this.#scores[slot] = before + (this.#best[slot] ?? 0);
      this.#best[slot] = 0;
    }
    for (const slot of this.#named) this.#namedWords[slot] = (this.#namedWords[slot] ?? 0) + 1;
    this.#ofTerm = [];
    this.#named = new Set();
  }

  /** The highest, ties in the order of the ids. */
  best(limit: number, wordsInName: (slot: number) => number): Hit[] {
    const hits: Hit[] = [];
    for (const slot of this.#found) {
      const named = (this.#namedWords[slot] ?? 0) / Math.max(MIN_NAME_WORDS, wordsInName(slot));
      const score = (this.#scores[slot] ?? 0) * (1 + NAME_BONUS * Math.min(1, named));
      // Thousands are found and a few are wanted: nothing else is put in order.
      const last = hits.at(-1);
      if (hits.length === limit && last !== undefined && score < last.score) continue;
      hits.push({ id: this.#ids[slot] ?? '', score });
      hits.sort((a, b) => b.score - a.score || (a.id < b.id ? -1 : 1));
      if (hits.length > limit) hits.pop();
    }
    return hits;
  }
}

const UNKNOWN = 0;
const TAKEN = 1;
const LEFT_OUT = 2;
