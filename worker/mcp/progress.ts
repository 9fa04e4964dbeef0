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

export class OutputProgress {
  readonly #report: (progress: Progress) => void;
  #characters = 0;
  #unreported = '';
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(report: (progress: Progress) => void) {
    this.#report = report;
  }

  took(text: string): void {
    this.#characters += text.length;
    this.#unreported = tailOf(`${this.#unreported}${text}`, MAX_MESSAGE_CHARACTERS);
    if (this.#timer === null) this.#flush();
  }

  /** What is not reported by now is in the result. */
  close(): void {
    clearTimeout(this.#timer);
    this.#unreported = '';
  }

  #flush(): void {
    this.#timer = null;
    if (this.#unreported === '') return;
    this.#report({ progress: this.#characters, message: this.#unreported });
    this.#unreported = '';
    this.#timer = setTimeout(() => this.#flush(), INTERVAL_MS);
  }
}
