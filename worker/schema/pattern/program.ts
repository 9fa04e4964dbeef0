/** A pattern as instructions of a machine that is in many places at once and so never goes back. */
import { type ParsedPattern, PatternFault, type PatternNode } from './syntax.ts';

export type Instruction =
  | { kind: 'take'; takes: (character: string) => boolean }
  | { kind: 'either'; first: number; second: number }
  | { kind: 'go'; to: number }
  | { kind: 'found' }
  | { kind: 'start' }
  | { kind: 'end' }
  | { kind: 'boundary'; negated: boolean }
  | { kind: 'look'; negated: boolean; program: Program };

export type Program = readonly Instruction[];

/** Counted repetitions are written out. */
const MAX_INSTRUCTIONS = 4_000;
/** Nodes written: repetitions of nothing, within each other, make no instruction and would go on for days. */
const MAX_WRITES = 40_000;
const ASCII = 128;

/** Instructions, those of what is looked ahead for among them. */
export function sizeOf(program: Program): number {
  return program.reduce(
    (size, instruction) => size + 1 + (instruction.kind === 'look' ? sizeOf(instruction.program) : 0),
    0,
  );
}

export function programOf({ node, unicode }: ParsedPattern): Program {
  const compiler = new Compiler(unicode);
  return compiler.program(node);
}

class Compiler {
  readonly #unicode: boolean;
  readonly #sets = new Map<string, (character: string) => boolean>();
  #instructions = 0;
  #writes = 0;

  constructor(unicode: boolean) {
    this.#unicode = unicode;
  }

  program(node: PatternNode): Program {
    const program: Instruction[] = [];
    this.#write(node, program);
    this.#push(program, { kind: 'found' });
    return program;
  }

  #write(node: PatternNode, program: Instruction[]): void {
    this.#writes += 1;
    if (this.#writes > MAX_WRITES) throw new PatternFault('fewer repetitions');
    switch (node.kind) {
      case 'character': {
        const { literal } = node;
        this.#push(program, { kind: 'take', takes: (character) => character === literal });
        return;
      }
      case 'set':
        this.#push(program, { kind: 'take', takes: this.#setOf(node.source) });
        return;
      case 'sequence':
        for (const part of node.parts) this.#write(part, program);
        return;
      case 'choice':
        this.#choice(node.options, program);
        return;
      case 'repeat':
        this.#repeat(node, program);
        return;
      case 'start':
      case 'end':
        this.#push(program, node);
        return;
      case 'boundary':
        this.#push(program, { kind: 'boundary', negated: node.negated });
        return;
      case 'look':
        this.#push(program, { kind: 'look', negated: node.negated, program: this.program(node.part) });
    }
  }

  #choice(options: readonly PatternNode[], program: Instruction[]): void {
    const ends: { kind: 'go'; to: number }[] = [];
    for (const [index, option] of options.entries()) {
      if (index === options.length - 1) {
        this.#write(option, program);
        break;
      }
      const either = this.#either(program);
      this.#write(option, program);
      const end = { kind: 'go' as const, to: 0 };
      this.#push(program, end);
      ends.push(end);
      either.second = program.length;
    }
    for (const end of ends) end.to = program.length;
  }

  #repeat({ part, min, max }: Extract<PatternNode, { kind: 'repeat' }>, program: Instruction[]): void {
    // Copies of nothing are as many.
    if (min > MAX_INSTRUCTIONS) throw new PatternFault('fewer repetitions');
    for (let count = 0; count < min; count += 1) this.#write(part, program);
    if (max === Number.POSITIVE_INFINITY) {
      const from = program.length;
      const either = this.#either(program);
      this.#write(part, program);
      this.#push(program, { kind: 'go', to: from });
      either.second = program.length;
      return;
    }
    if (max > MAX_INSTRUCTIONS) throw new PatternFault('fewer repetitions');
    const optional: { second: number }[] = [];
    for (let count = min; count < max; count += 1) {
      optional.push(this.#either(program));
      this.#write(part, program);
    }
    for (const either of optional) either.second = program.length;
  }

  /** Goes on, or to a place that is known later. */
  #either(program: Instruction[]): { second: number } {
    const either = { kind: 'either' as const, first: program.length + 1, second: 0 };
    this.#push(program, either);
    return either;
  }

  #push(program: Instruction[], instruction: Instruction): void {
    this.#instructions += 1;
    if (this.#instructions > MAX_INSTRUCTIONS) throw new PatternFault('fewer repetitions');
    program.push(instruction);
  }

  #setOf(source: string): (character: string) => boolean {
    const known = this.#sets.get(source);
    if (known !== undefined) return known;
    const expression = new RegExp(`^${source}$`, this.#unicode ? 'u' : '');
    const ascii = Uint8Array.from({ length: ASCII }, (_, code) =>
      expression.test(String.fromCharCode(code)) ? 1 : 0,
    );
    const takes = (character: string) => {
      const code = character.charCodeAt(0);
      return code < ASCII ? ascii[code] === 1 : expression.test(character);
    };
    this.#sets.set(source, takes);
    return takes;
  }
}
