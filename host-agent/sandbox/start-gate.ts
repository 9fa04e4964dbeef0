/** Bounds how many sandboxes start at the same time: a start is mostly CPU, and more of them only end later. */
export class StartGate {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(parallelStarts: number) {
    this.#free = parallelStarts;
  }

  async run<Value>(start: () => Promise<Value>): Promise<Value> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await start();
    } finally {
      // A place goes straight to the next in line, so nobody can slip in between.
      const next = this.#waiting.shift();
      if (next === undefined) this.#free += 1;
      else next();
    }
  }
}
