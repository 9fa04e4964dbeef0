/**
 * For how long this host may act without a word from the edge. The edge gives the sessions of a host that it has not
 * heard of for 45 s to others; well before that, and by no clock but this host's own, nothing of them runs here.
 */
import { uptime } from 'node:os';
import { HOST_LEASE_END_MS, HOST_LEASE_MS } from '../../shared/limits.ts';

/** `held`: as usual. `lapsed`: everything stands still. `ended`: what there was is gone, until the edge is back. */
export type LeaseState = 'held' | 'lapsed' | 'ended';

export interface LeaseClocks {
  now?: () => number;
  /** Counts on while the machine is suspended, which the monotonic clock may not; its unit is a whole second here and there. */
  bootClock?: () => number;
}

export interface LeaseOptions extends LeaseClocks {
  onChange: (state: LeaseState) => void;
}

const BOOT_CLOCK_UNIT_MS = 1_000;
/** Timers stand still with a machine that is suspended: soon after it goes on, the clock that did not is looked at. */
const LOOK_MS = 1_000;

export class Lease {
  readonly #onChange: (state: LeaseState) => void;
  readonly #now: () => number;
  readonly #bootClock: () => number;
  #renewed: { atMs: number; bootMs: number } | undefined;
  #state: LeaseState = 'held';
  #timer: NodeJS.Timeout | undefined;

  constructor(options: LeaseOptions) {
    this.#onChange = options.onChange;
    this.#now = options.now ?? (() => performance.now());
    this.#bootClock = options.bootClock ?? (() => uptime() * 1_000);
  }

  /** The edge has heard what was sent at `sentAtMs`: it counts from then or later, and so may this host. */
  renew(sentAtMs: number): void {
    if (this.#renewed !== undefined && sentAtMs <= this.#renewed.atMs) return;
    const sinceMs = this.#now() - sentAtMs;
    this.#renewed = { atMs: sentAtMs, bootMs: this.#bootClock() - sinceMs };
    this.#judge();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#renewed = undefined;
  }

  /** The longer of what the two clocks say. */
  get #silentMs(): number {
    if (this.#renewed === undefined) return 0;
    const bootMs = this.#bootClock() - this.#renewed.bootMs - BOOT_CLOCK_UNIT_MS;
    return Math.max(this.#now() - this.#renewed.atMs, bootMs);
  }

  #judge(): void {
    clearTimeout(this.#timer);
    if (this.#renewed === undefined) return;
    const silentMs = this.#silentMs;
    const next = silentMs < HOST_LEASE_MS ? 'held' : silentMs < HOST_LEASE_END_MS ? 'lapsed' : 'ended';
    if (next !== 'ended') {
      const leftMs = Math.ceil((next === 'held' ? HOST_LEASE_MS : HOST_LEASE_END_MS) - silentMs);
      this.#timer = setTimeout(() => this.#judge(), Math.min(Math.max(1, leftMs), LOOK_MS)).unref();
    }
    if (next === this.#state) return;
    this.#state = next;
    this.#onChange(next);
  }
}
