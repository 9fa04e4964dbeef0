/** Output of a running program as `notifications/progress`: the newest text, not more often than a client can show. */
import { tailOf } from '../rendering/clip.ts';
import type { EdgeProgress } from '../tools/edge-execution.ts';

const INTERVAL_MS = 100;
const MAX_MESSAGE_CHARACTERS = 2_000;

export interface Progress {
  /** Characters of output so far, or what the server that runs the call counts: it only grows. */
  progress: number;
  total?: number;
  message?: string;
}

/** As the server that runs the call says it. */
export function progressOfServer({ progress, total, message }: EdgeProgress): Progress {
  return { progress, ...(total === null ? {} : { total }), ...(message === null ? {} : { message }) };
}

/**
 * `cursor`: the place in the events of the execution up to which this was read. None where its events are not what is
 * reported.
 */
export type OnProgress = (progress: Progress, cursor?: string) => void;

export class OutputProgress {
  readonly #report: OnProgress;
  #characters: number;
  #cursor = '';
  #unreported = '';
  #timer: ReturnType<typeof setTimeout> | null = null;

  /** `characters`: those that were reported before. */
  constructor(report: OnProgress, characters = 0) {
    this.#report = report;
    this.#characters = characters;
  }

  took(text: string, cursor: string): void {
    this.#characters += text.length;
    this.#cursor = cursor;
    this.#unreported = tailOf(`${this.#unreported}${text}`, MAX_MESSAGE_CHARACTERS);
    if (this.#timer === null) this.#flush();
  }

  /** What is not reported by now is in the result. */
  close(): void {
    clearTimeout(this.#timer);
    this.#unreported = '';
  }

  /** Reports at once what waits for its turn. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#flush();
  }

  #flush(): void {
    this.#timer = null;
    if (this.#unreported === '') return;
    this.#report({ progress: this.#characters, message: this.#unreported }, this.#cursor);
    this.#unreported = '';
    this.#timer = setTimeout(() => this.#flush(), INTERVAL_MS);
  }
}
