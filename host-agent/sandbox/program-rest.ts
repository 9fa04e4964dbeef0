/**
 * A program that waits for its tools: its clock stands still, and after a while its sandbox is frozen, unless something
 * else lives in it. What only claims to wait is frozen with the rest.
 */
import type { ProgramListener } from './port.ts';
import type { RunClock } from './run-clock.ts';

/** From the moment that all branches wait to the freezing of the sandbox. */
export const DEFAULT_REST_AFTER_MS = 2_000;
const LONGEST_RETRY_MS = 30_000;

export interface Sleeper {
  /** Freezes the sandbox, unless something else in it lives or moves. */
  trySleep(): Promise<boolean>;
  /** The sandbox runs when this returns, and is kept awake. */
  wake(): void;
}

/** Of a sandbox that is never frozen. */
export const NEVER_SLEEPS: Sleeper = { trySleep: async () => false, wake: () => undefined };

export class ProgramRest {
  readonly #clock: RunClock;
  readonly #sleeper: Sleeper;
  readonly #afterMs: number;
  readonly #listener: ProgramListener;
  #isWaiting = false;
  #rests = false;
  /** What is tried for a former round is void. */
  #round = 0;
  #letClockRun: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: { clock: RunClock; sleeper: Sleeper; afterMs: number; listener: ProgramListener }) {
    this.#clock = parts.clock;
    this.#sleeper = parts.sleeper;
    this.#afterMs = parts.afterMs;
    this.#listener = parts.listener;
  }

  /** The program says that it waits; `rests`: for tools alone. */
  waits(rests: boolean): void {
    this.#rests = rests;
    this.#stop();
    if (rests) {
      this.#letClockRun ??= this.#clock.hold();
      this.#sleepAfter(this.#afterMs);
    }
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    this.#listener.onWaiting(Math.floor(this.#clock.leftMs));
  }

  /** Something of the program moves though it waits, such as a thread that prints: its time counts. */
  stirs(): void {
    if (!this.#isWaiting || !this.#rests) return;
    this.#stop();
    this.#sleepAfter(this.#afterMs);
  }

  /** It has an answer, or calls again. */
  goesOn(): void {
    if (!this.#isWaiting) return;
    this.#isWaiting = false;
    this.#rests = false;
    this.#stop();
    this.#listener.onContinued(Math.floor(this.#clock.leftMs));
  }

  #stop(): void {
    this.#round += 1;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sleeper.wake();
    this.#letClockRun?.();
    this.#letClockRun = undefined;
  }

  #sleepAfter(delayMs: number): void {
    this.#timer = setTimeout(() => void this.#sleep(delayMs), delayMs).unref();
  }

  async #sleep(delayMs: number): Promise<void> {
    const round = this.#round;
    const sleeps = await this.#sleeper.trySleep();
    if (round !== this.#round) {
      // What woke it came before it slept.
      if (sleeps) this.#sleeper.wake();
      return;
    }
    this.#letClockRun ??= this.#clock.hold();
    if (sleeps) return;
    this.#sleepAfter(Math.min(2 * Math.max(1, delayMs), LONGEST_RETRY_MS));
  }
}
