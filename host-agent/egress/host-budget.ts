/** How many connections all sandboxes of this host have to the outside together. */
export class HostBudget {
  readonly #maxConnections: number;
  #taken = 0;

  constructor(maxConnections: number) {
    this.#maxConnections = maxConnections;
  }

  /** False when there are no more. */
  take(): boolean {
    if (this.#taken >= this.#maxConnections) return false;
    this.#taken += 1;
    return true;
  }

  giveBack(): void {
    this.#taken -= 1;
  }
}
