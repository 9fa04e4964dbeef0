/** BM25 as the textbook has it, over one text for each tool: what ours is compared with. */
import type { BenchTool } from './tool-data.ts';

const SATURATION = 1.2;
const THINNING = 0.75;

function wordsOf(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
}

export class PlainBm25 {
  readonly #postings = new Map<string, Map<number, number>>();
  readonly #lengths: number[] = [];
  readonly #ids: string[] = [];

  constructor(tools: readonly BenchTool[]) {
    for (const [slot, tool] of tools.entries()) {
      const words = wordsOf(`${tool.name} ${tool.description} ${tool.category} ${tool.parameters}`);
      this.#ids.push(tool.id);
      this.#lengths.push(words.length);
      for (const word of words) {
        const counts = this.#postings.get(word) ?? new Map<number, number>();
        counts.set(slot, (counts.get(slot) ?? 0) + 1);
        this.#postings.set(word, counts);
      }
    }
  }

  search(query: string, limit: number): string[] {
    const average = this.#lengths.reduce((sum, length) => sum + length, 0) / this.#lengths.length;
    const scores = new Map<number, number>();
    for (const word of wordsOf(query)) {
      const counts = this.#postings.get(word);
      if (counts === undefined) continue;
      const idf = Math.log(1 + (this.#ids.length - counts.size + 0.5) / (counts.size + 0.5));
      for (const [slot, count] of counts) {
        const length = (this.#lengths[slot] ?? 0) / average;
        const frequency =
          (count * (SATURATION + 1)) / (count + SATURATION * (1 - THINNING + THINNING * length));
        scores.set(slot, (scores.get(slot) ?? 0) + idf * frequency);
      }
    }
    return [...scores]
      .toSorted((a, b) => b[1] - a[1])
      .slice(0, limit)
      .map(([slot]) => this.#ids[slot] ?? '');
  }
}
