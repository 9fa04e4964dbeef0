/** What lies on this host for a while, by name, the oldest first. Who holds it says what its removal is. */

export interface KeptEntriesOptions<Entry> {
  maxAgeMs: number;
  /** Never rejects. */
  remove: (name: string, entry: Entry) => Promise<void>;
}

interface Kept<Entry> {
  entry: Entry;
  bytes: number;
  untilMs: number;
}

export class KeptEntries<Entry> {
  readonly #options: KeptEntriesOptions<Entry>;
  readonly #kept = new Map<string, Kept<Entry>>();
  #bytes = 0;
  #sweep: NodeJS.Timeout | undefined;

  constructor(options: KeptEntriesOptions<Entry>) {
    this.#options = options;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get(name: string): Entry | undefined {
    return this.#kept.get(name)?.entry;
  }

  namesOf(isWanted: (entry: Entry) => boolean): string[] {
    return [...this.#kept].filter(([, { entry }]) => isWanted(entry)).map(([name]) => name);
  }

  add(name: string, entry: Entry, bytes: number): void {
    this.#kept.set(name, { entry, bytes, untilMs: performance.now() + this.#options.maxAgeMs });
    this.#bytes += bytes;
    this.#planSweep();
  }

  async drop(names: Iterable<string>): Promise<void> {
    for (const name of names) {
      const kept = this.#kept.get(name);
      if (kept === undefined) continue;
      this.#kept.delete(name);
      this.#bytes -= kept.bytes;
      await this.#options.remove(name, kept.entry);
    }
  }

  /** False where nothing is kept. */
  async dropOldest(): Promise<boolean> {
    const [oldest] = this.#kept.keys();
    if (oldest === undefined) return false;
    await this.drop([oldest]);
    return true;
  }

  #planSweep(): void {
    const [oldest] = this.#kept.values();
    if (this.#sweep !== undefined || oldest === undefined) return;
    const delayMs = Math.max(0, oldest.untilMs - performance.now());
    this.#sweep = setTimeout(() => void this.#removeOld(), delayMs).unref();
  }

  async #removeOld(): Promise<void> {
    const nowMs = performance.now();
    await this.drop([...this.#kept].filter(([, { untilMs }]) => untilMs <= nowMs).map(([name]) => name));
    this.#sweep = undefined;
    this.#planSweep();
  }
}
