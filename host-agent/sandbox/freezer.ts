/**
 * Stops a sandbox in which nothing runs and wakes it before anything goes to it: gVisor spends CPU also on a guest
 * that only waits. Frozen, a sandbox costs memory alone.
 */
import type { Wakefulness } from '../guest-link/wakefulness.ts';

/** Without traffic for so long, a sandbox is looked at. */
export const IDLE_MS = 1_000;
/** A sandbox that is busy by itself is looked at again after this, and then after twice as long each time. */
const FIRST_RECHECK_MS = 2_000;
const LAST_RECHECK_MS = 30_000;

export interface FreezerHost {
  /** Stops every process of the sandbox, some of them perhaps a moment later. */
  freeze(): void;
  thaw(): void;
  /** Whether no process of the guest lives but those that wait for the host. */
  isQuiet(): Promise<boolean>;
  /** Whether the sandbox could outlive its agent; where none says so, it could not. */
  rest?: FreezerRest;
}

export interface FreezerRest {
  /** Gives what is to be done as it is frozen. */
  begin(): Promise<(() => void) | undefined>;
  /** It is not frozen, or not any more. */
  stir(): void;
}

export class Freezer implements Wakefulness {
  readonly #host: FreezerHost;
  readonly #idleMs: number;
  #timer: NodeJS.Timeout | undefined;
  #timerMs = 0;
  #recheckMs = FIRST_RECHECK_MS;
  #looking: Promise<void> = Promise.resolve();
  #holds = 0;
  /** Counts what went to the guest, so that a look at it knows whether it is still true. */
  #traffic = 0;
  #stills = 0;
  #frozen = false;
  /** Told to stand still, whatever comes. */
  #paused: { over: Promise<void>; end: () => void } | undefined;
  #disposed = false;

  constructor(host: FreezerHost, idleMs: number = IDLE_MS) {
    this.#host = host;
    this.#idleMs = idleMs;
  }

  /** Somebody before this has frozen it. */
  wasFrozen(): void {
    this.#stopTimer();
    this.#frozen = true;
    if (this.#holds > 0) this.#wake();
  }

  get frozen(): boolean {
    return this.#frozen;
  }

  get standing(): Promise<void> | undefined {
    return this.#paused?.over;
  }

  /** Frozen until `resume`, whatever goes to the guest meanwhile. False where the kernel refused. */
  pause(): boolean {
    if (this.#disposed) return false;
    if (this.#paused !== undefined) return true;
    this.#stopTimer();
    if (!this.#frozen && !this.#freeze()) return false;
    const { promise: over, resolve: end } = Promise.withResolvers<void>();
    this.#paused = { over, end };
    return true;
  }

  resume(): void {
    const paused = this.#paused;
    if (paused === undefined) return;
    this.#paused = undefined;
    this.touch();
    paused.end();
  }

  touch(): void {
    this.#traffic += 1;
    this.#wake();
    if (this.#mustStand || this.#holds > 0 || this.#disposed) return;
    this.#recheckMs = FIRST_RECHECK_MS;
    // Each frame comes here: to set a timer back costs less than to make one.
    if (this.#timer !== undefined && this.#timerMs === this.#idleMs) this.#timer.refresh();
    else this.#lookAfter(this.#idleMs);
  }

  hold(): () => void {
    this.#holds += 1;
    this.#wake();
    this.#stopTimer();
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#holds -= 1;
      this.touch();
    };
  }

  /** Frozen until the returned function is called, whatever runs and whatever comes for the guest meanwhile. */
  standStill(): () => void {
    this.#stills += 1;
    this.#stopTimer();
    if (!this.#disposed && !this.#frozen) this.#freeze();
    let still = true;
    return () => {
      if (!still) return;
      still = false;
      this.#stills -= 1;
      this.touch();
    };
  }

  /** Freezes now, unless something holds it awake, lives in it, or goes to it meanwhile. */
  async freezeNow(): Promise<boolean> {
    const before = this.#traffic;
    const isQuiet = this.#frozen || (await this.#host.isQuiet().catch(() => false));
    if (this.#disposed || this.#holds > 0) return false;
    if (this.#frozen || this.#mustStand || this.#traffic !== before || !isQuiet) return this.#frozen;
    this.#stopTimer();
    return this.#freeze();
  }

  /** Looks at it, and freezes it, as if it had been idle for long. */
  async lookNow(): Promise<void> {
    this.#stopTimer();
    await this.#looking;
    if (!this.#frozen) await this.#look();
  }

  /** Awake for good: what is to end must be able to. */
  dispose(): void {
    this.#disposed = true;
    this.#stopTimer();
    this.#wake();
    this.#paused?.end();
    this.#paused = undefined;
  }

  get #mustStand(): boolean {
    return this.#stills > 0 || this.#paused !== undefined;
  }

  #wake(): void {
    if (!this.#frozen || (this.#mustStand && !this.#disposed)) return;
    this.#frozen = false;
    this.#host.rest?.stir();
    this.#host.thaw();
  }

  /** False where the kernel refused: awake it costs CPU, but works. */
  #freeze(): boolean {
    this.#frozen = true;
    try {
      this.#host.freeze();
    } catch {
      // It may have been frozen in part.
      this.#frozen = false;
      this.#host.rest?.stir();
      this.#host.thaw();
    }
    return this.#frozen;
  }

  #lookAfter(delayMs: number): void {
    this.#stopTimer();
    this.#timerMs = delayMs;
    // Where the kernel can be told nothing, as out of descriptors, it is looked at again.
    const again = (): void => this.#lookAfter(LAST_RECHECK_MS);
    this.#timer = setTimeout(() => {
      this.#looking = this.#look().catch(again);
    }, delayMs).unref();
  }

  #stopTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  async #look(): Promise<void> {
    this.#timer = undefined;
    const before = this.#traffic;
    const isOver = () => this.#disposed || this.#mustStand || this.#holds > 0 || this.#traffic !== before;
    const quiet = await this.#host.isQuiet().catch(() => false);
    if (isOver()) return;
    const keep = quiet ? await this.#host.rest?.begin().catch(() => undefined) : undefined;
    if (isOver()) {
      this.#host.rest?.stir();
      return;
    }
    keep?.();
    if (quiet && this.#freeze()) return;
    this.#lookAfter(this.#recheckMs);
    this.#recheckMs = Math.min(2 * this.#recheckMs, LAST_RECHECK_MS);
  }
}
