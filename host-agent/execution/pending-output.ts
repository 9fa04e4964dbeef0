/** Output of a program that goes on before anybody records it: kept until somebody does, which its credit bounds. */
import type { OutputSink } from '../sandbox/port.ts';

interface PendingPiece {
  args: Parameters<OutputSink>;
  taken: (recorded: Promise<void>) => void;
}

export class PendingOutput {
  #pending: PendingPiece[] = [];
  #sink: OutputSink | undefined;

  readonly sink: OutputSink = (...args) => {
    if (this.#sink !== undefined) return this.#sink(...args);
    return new Promise((resolve) => {
      this.#pending.push({ args, taken: resolve });
    });
  };

  attach(sink: OutputSink): void {
    this.#sink = sink;
    for (const { args, taken } of this.#pending) taken(sink(...args));
    this.#pending = [];
  }
}
