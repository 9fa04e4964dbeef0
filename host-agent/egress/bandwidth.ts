/**
 * How fast sandboxes move bytes to and from the outside, both ways together: each within its own rate, all of them within the
 * host's, and where that is short, in turns by bytes. Nothing is dropped: whoever has no share yet waits, and holds back who
 * sends to it.
 */

export interface BandwidthRates {
  /** Bytes a second, of all sandboxes together. */
  readonly hostRate: number;
  /** Bytes a second, of one of them. */
  readonly sandboxRate: number;
}

export interface BandwidthShare {
  /** True: the bytes may go now. False: `whenGranted` is called when they may. */
  take(bytes: number, whenGranted: () => void): boolean;
  /** Those that wait are heard of no more. */
  close(): void;
}

/** What may go at once after a quiet time, in seconds of the rate. */
const BURST_S = 0.25;
/** More often than that nobody is let on: a timer costs more than the bytes that it frees. */
const SHORTEST_PAUSE_MS = 5;

/** Lets go while anything is left, into debt if need be: so a piece larger than the burst passes too. */
class TokenBucket {
  readonly #rate: number;
  #tokens: number;
  #atMs = performance.now();

  constructor(rate: number) {
    this.#rate = rate;
    this.#tokens = rate * BURST_S;
  }

  /** 0: something may go. */
  pauseMs(nowMs: number): number {
    const refilled = this.#tokens + ((nowMs - this.#atMs) / 1000) * this.#rate;
    this.#tokens = Math.min(this.#rate * BURST_S, refilled);
    this.#atMs = nowMs;
    return this.#tokens > 0 ? 0 : ((1 - this.#tokens) / this.#rate) * 1000;
  }

  pay(bytes: number): void {
    this.#tokens -= bytes;
  }
}

interface Request {
  readonly bytes: number;
  isGranted: boolean;
  whenGranted: () => void;
}

interface Sharer {
  readonly bucket: TokenBucket;
  readonly requests: Request[];
  /** Bytes it has been granted, as if it had always asked: whoever has the fewest is next. */
  granted: number;
}

export class HostBandwidth {
  readonly #sandboxRate: number;
  readonly #bucket: TokenBucket;
  readonly #waiting = new Set<Sharer>();
  /** Where the sharers stand in `granted`: who comes anew begins here, and has saved up nothing. */
  #level = 0;
  #isServing = false;
  #timer: NodeJS.Timeout | undefined;

  constructor({ hostRate, sandboxRate }: BandwidthRates) {
    this.#sandboxRate = sandboxRate;
    this.#bucket = new TokenBucket(hostRate);
  }

  shareOfSandbox(): BandwidthShare {
    const sharer: Sharer = { bucket: new TokenBucket(this.#sandboxRate), requests: [], granted: 0 };
    return {
      take: (bytes, whenGranted) => this.#take(sharer, bytes, whenGranted),
      close: () => {
        sharer.requests.length = 0;
        this.#waiting.delete(sharer);
      },
    };
  }

  #take(sharer: Sharer, bytes: number, whenGranted: () => void): boolean {
    const request: Request = { bytes, isGranted: false, whenGranted: () => undefined };
    if (sharer.requests.length === 0) sharer.granted = Math.max(sharer.granted, this.#level);
    sharer.requests.push(request);
    this.#waiting.add(sharer);
    this.#serve();
    request.whenGranted = whenGranted;
    return request.isGranted;
  }

  #serve(): void {
    // Whoever is called back may ask again at once; that is part of the same round.
    if (this.#isServing) return;
    this.#isServing = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const nowMs = performance.now();
    let hostPauseMs = this.#bucket.pauseMs(nowMs);
    for (let next = this.#next(nowMs); hostPauseMs === 0 && next !== undefined; next = this.#next(nowMs)) {
      this.#grant(next);
      hostPauseMs = this.#bucket.pauseMs(nowMs);
    }
    this.#isServing = false;
    if (this.#waiting.size === 0) return;
    const pausesMs = [...this.#waiting].map(({ bucket }) => bucket.pauseMs(nowMs));
    const pauseMs = Math.max(SHORTEST_PAUSE_MS, hostPauseMs, Math.min(...pausesMs));
    this.#timer = setTimeout(() => this.#serve(), pauseMs).unref();
  }

  #next(nowMs: number): Sharer | undefined {
    let next: Sharer | undefined;
    for (const sharer of this.#waiting) {
      if (sharer.bucket.pauseMs(nowMs) > 0) continue;
      if (next === undefined || sharer.granted < next.granted) next = sharer;
    }
    return next;
  }

  #grant(sharer: Sharer): void {
    const request = sharer.requests.shift();
    if (sharer.requests.length === 0) this.#waiting.delete(sharer);
    if (request === undefined) return;
    this.#level = Math.max(this.#level, sharer.granted);
    sharer.granted += request.bytes;
    sharer.bucket.pay(request.bytes);
    this.#bucket.pay(request.bytes);
    request.isGranted = true;
    request.whenGranted();
  }
}
