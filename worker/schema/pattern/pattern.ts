/**
 * Regular expressions of ECMAScript whose time grows evenly with the text: all ways to match are followed at once. What
 * cannot be followed so (back-references, look-behind) is refused when the pattern is read.
 */
import type { Budget } from '../budget.ts';
import { type Instruction, type Program, programOf, sizeOf } from './program.ts';
import { parsePattern } from './syntax.ts';

const WORD = /^[A-Za-z0-9_]$/;

export class Pattern {
  readonly #program: Program;
  readonly #unicode: boolean;

  /** Throws `PatternFault` for what is no pattern, or one that is not taken. */
  constructor(source: string) {
    const parsed = parsePattern(source);
    this.#program = programOf(parsed);
    this.#unicode = parsed.unicode;
  }

  /** What it takes in memory. */
  get size(): number {
    return sizeOf(this.#program);
  }

  /** Whether it is found anywhere in the text. */
  isIn(text: string, budget: Pick<Budget, 'spend'>): boolean {
    const characters = this.#unicode ? Array.from(text) : text.split('');
    budget.spend(characters.length);
    return new Run(characters, budget).finds(this.#program, { from: 0, anywhere: true });
  }
}

class Run {
  readonly #text: readonly string[];
  readonly #budget: Pick<Budget, 'spend'>;

  constructor(text: readonly string[], budget: Pick<Budget, 'spend'>) {
    this.#text = text;
    this.#budget = budget;
  }

  finds(program: Program, { from, anywhere }: { from: number; anywhere: boolean }): boolean {
    this.#budget.spend(program.length >> 4);
    const seen = new Int32Array(program.length).fill(-1);
    let places: number[] = [];
    for (let at = from; ; at += 1) {
      const next = { program, at, seen, places: [] as number[] };
      if (at === from || anywhere) places.push(0);
      for (const place of places) if (this.#reach(next, place)) return true;
      const character = this.#text[at];
      if (character === undefined) return false;
      places = [];
      this.#budget.spend(next.places.length + 1);
      for (const place of next.places) {
        const instruction = program[place];
        if (instruction?.kind === 'take' && instruction.takes(character)) places.push(place + 1);
      }
      if (places.length === 0 && !anywhere) return false;
    }
  }

  /** Everything that is reached from a place without reading; true where the end of the pattern is. */
  #reach(
    state: { program: Program; at: number; seen: Int32Array; places: number[] },
    start: number,
  ): boolean {
    const pending = [start];
    for (let place = pending.pop(); place !== undefined; place = pending.pop()) {
      if (state.seen[place] === state.at) continue;
      state.seen[place] = state.at;
      this.#budget.spend(1);
      const instruction = state.program[place];
      if (instruction === undefined) continue;
      if (instruction.kind === 'found') return true;
      if (instruction.kind === 'take') state.places.push(place);
      else if (instruction.kind === 'go') pending.push(instruction.to);
      else if (instruction.kind === 'either') pending.push(instruction.second, instruction.first);
      else if (this.#holds(instruction, state.at)) pending.push(place + 1);
    }
    return false;
  }

  #holds(
    instruction: Extract<Instruction, { kind: 'start' | 'end' | 'boundary' | 'look' }>,
    at: number,
  ): boolean {
    switch (instruction.kind) {
      case 'start':
        return at === 0;
      case 'end':
        return at === this.#text.length;
      case 'boundary': {
        const between = this.#isWord(at - 1) !== this.#isWord(at);
        return between !== instruction.negated;
      }
      case 'look':
        return this.finds(instruction.program, { from: at, anywhere: false }) !== instruction.negated;
    }
  }

  #isWord(at: number): boolean {
    return WORD.test(this.#text[at] ?? '');
  }
}
