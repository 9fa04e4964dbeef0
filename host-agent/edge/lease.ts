/**
 * For how long this host may act without a word from the edge. The edge gives the sessions of a host that it has not
 * heard of for 45 s to others; well before that, and by no clock but this host's own, nothing of them runs here.
 */
import { uptime } from 'node:os';
import { HOST_LEASE_END_MS, HOST_LEASE_MS } from '../../shared/limits.ts';

/** `held`: as usual. `lapsed`: everything stands still. `ended`: what there was is gone, until the edge is back. */
export type LeaseState = 'held' | 'lapsed' | 'ended';

export interface LeaseTiming {
  lapseAfterMs: number;
  endAfterMs: number;
}

export interface LeaseOptions extends Partial<LeaseTiming> {
  onChange: (state: LeaseState) => void;
  now?: () => number;
  /** Counts on while the machine is suspended, which the monotonic clock may not; its unit is a whole second here and there. */
  bootClock?: () => number;
}

const BOOT_CLOCK_UNIT_MS = 1_000;

export class Lease {
  readonly #onChange: (state: LeaseState) => void;
  readonly #lapseAfterMs: number;
  readonly #endAfterMs: number;
  readonly #now: () => number;
  readonly #bootClock: () => number;
  #renewed: { atMs: number; bootMs: number } | undefined;
  #state: LeaseState = 'held';
  #timer: NodeJS.Timeout | undefined;

  constructor(options: LeaseOptions) {
    this.#onChange = options.onChange;
    this.#lapseAfterMs = options.lapseAfterMs ?? HOST_LEASE_MS;
    this.#endAfterMs = options.endAfterMs ?? HOST_LEASE_END_MS;
    this.#now = options.now ?? (() => performance.now());
    this.#bootClock = options.bootClock ?? (() => uptime() * 1_000);
  }

  get state(): LeaseState {
    this.#judge();
    return this.#state;
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
    const next = silentMs < this.#lapseAfterMs ? 'held' : silentMs < this.#endAfterMs ? 'lapsed' : 'ended';
    if (next !== 'ended') {
      const leftMs = (next === 'held' ? this.#lapseAfterMs : this.#endAfterMs) - silentMs;
      this.#timer = setTimeout(() => this.#judge(), Math.max(1, Math.ceil(leftMs))).unref();
    }
    if (next === this.#state) return;
    this.#state = next;
    this.#onChange(next);
  }
}
