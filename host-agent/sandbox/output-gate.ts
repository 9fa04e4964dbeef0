/** Between the guest and a sink: passes the sink's slowness on to the guest until the gate is opened for good. */
import type { OutputSink } from './port.ts';

export class OutputGate {
  readonly #sink: OutputSink;
  readonly #held = new Set<() => void>();
  #open = false;

  constructor(sink: OutputSink) {
    this.#sink = sink;
  }

  /** The sink is always given the bytes at once and in order; only the answer may be kept back. */
  readonly pass: OutputSink = (stream, bytes) => {
    const taken = this.#sink(stream, bytes);
    if (this.#open) return Promise.resolve();
    return new Promise((resolve) => {
      const release = (): void => {
        this.#held.delete(release);
        resolve();
      };
      this.#held.add(release);
      void taken.then(release, release);
    });
  };

  /** From now on the guest waits for nobody. What it may still send is bounded by its credit. */
  open(): void {
    this.#open = true;
    for (const release of this.#held) release();
  }
}
