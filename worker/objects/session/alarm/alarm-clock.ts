/** The object's one alarm. It is only ever moved forward: what it finds nothing to do for, it sets again. */
export class AlarmClock {
  readonly #storage: DurableObjectStorage;
  #atMs: number | null = null;

  constructor(storage: DurableObjectStorage) {
    this.#storage = storage;
  }

  async load(): Promise<void> {
    this.#atMs = await this.#storage.getAlarm();
  }

  /** Makes sure that the alarm rings at `atMs` or before. Setting an alarm is a write, so it is set seldom. */
  ensure(atMs: number | null): void {
    if (atMs === null || (this.#atMs !== null && this.#atMs <= atMs)) return;
    this.#atMs = atMs;
    // Its failure resets the object like that of any other write.
    void this.#storage.setAlarm(atMs);
  }

  rang(): void {
    this.#atMs = null;
  }

  /** Sets the alarm to exactly this, or to none. */
  set(atMs: number | null): void {
    this.#atMs = atMs;
    if (atMs === null) void this.#storage.deleteAlarm();
    else void this.#storage.setAlarm(atMs);
  }
}
