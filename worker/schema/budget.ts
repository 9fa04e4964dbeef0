/** What one check may cost: schemas and patterns are written by others, and a Worker cannot stop a loop from outside. */
export class Budget {
  #left: number;

  constructor(steps: number) {
    this.#left = steps;
  }

  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left < 0) throw new SchemaLimit('the check takes too many steps');
  }
}

/** A check that was given up: neither that the value fits nor that it does not is known. */
export class SchemaLimit extends Error {
  override name = 'SchemaLimit';
}
