/** A process of clients: what it sends is not held up by what else the bench does. Plan in, report out, as JSON. */
import { text } from 'node:stream/consumers';
import { setTimeout as wait } from 'node:timers/promises';
import { Pool } from 'undici';
import { type Group, type Plan, PlanSchema, type Seen, type Target } from './plan.ts';

const TICK_MS = 5;
const MAX_CONNECTIONS = 512;
/** What was sent in time may be answered so long after the end; later is no answer. */
const STRAGGLERS_MS = 2_000;

class Tally {
  readonly #name: string;
  sent = 0;
  shed = 0;
  failed = 0;
  readonly okMs: number[] = [];
  readonly shedMs: number[] = [];

  constructor(name: string) {
    this.#name = name;
  }

  seen(durationMs: number): Seen {
    const ok = this.okMs.length;
    const [p50Ms, p95Ms] = [0.5, 0.95].map((share) => quantile(this.okMs, share));
    return {
      name: this.#name,
      sent: this.sent,
      ok,
      shed: this.shed,
      failed: this.failed,
      okPerS: (ok * 1_000) / durationMs,
      p50Ms: p50Ms ?? null,
      p95Ms: p95Ms ?? null,
      shedP50Ms: quantile(this.shedMs, 0.5) ?? null,
    };
  }
}

function quantile(samples: number[], share: number): number | undefined {
  const sorted = samples.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

class Clients {
  readonly #group: Group;
  readonly #pool: Pool;
  readonly #span: { fromMs: number; toMs: number };
  readonly tally: Tally;

  constructor(group: Group, plan: Plan, startedAtMs: number) {
    this.#group = group;
    this.#pool = new Pool(plan.url, {
      connections: Math.min(group.clients, MAX_CONNECTIONS),
      headersTimeout: 60_000,
    });
    const fromMs = startedAtMs + plan.warmUpMs;
    this.#span = { fromMs, toMs: fromMs + plan.durationMs };
    this.tally = new Tally(group.name);
  }

  async run(): Promise<void> {
    await (this.#group.perSecond === null ? this.#oneAfterTheOther() : this.#atRate(this.#group.perSecond));
    await this.#pool.destroy();
  }

  async #oneAfterTheOther(): Promise<void> {
    const client = async (first: number): Promise<void> => {
      const { rotates } = this.#group;
      for (let index = first; performance.now() < this.#span.toMs; index += rotates ? 1 : 0) {
        const retryAfterMs = await this.#send(this.#target(index), performance.now());
        if (retryAfterMs > 0)
          await wait(Math.min(retryAfterMs, Math.max(0, this.#span.toMs - performance.now())));
      }
    };
    await Promise.all(Array.from({ length: this.#group.clients }, (_, index) => client(index)));
  }

  /** Each is timed from the moment at which it should have been sent. */
  async #atRate(perSecond: number): Promise<void> {
    const beganAtMs = performance.now();
    const underWay = new Set<Promise<unknown>>();
    let sent = 0;
    for (;;) {
      const nowMs = performance.now();
      if (nowMs >= this.#span.toMs) break;
      for (; beganAtMs + (sent * 1_000) / perSecond <= nowMs; sent += 1) {
        const answered = this.#send(this.#target(sent), beganAtMs + (sent * 1_000) / perSecond);
        underWay.add(answered);
        void answered.then(() => underWay.delete(answered));
      }
      await wait(TICK_MS);
    }
    await Promise.race([Promise.all(underWay), wait(STRAGGLERS_MS)]);
  }

  #target(index: number): Target {
    const { targets } = this.#group;
    const target = targets[index % targets.length];
    if (target === undefined) throw new Error('a group without targets');
    return target;
  }

  /** How long to wait before the next one. */
  async #send({ method, path, body }: Target, dueAtMs: number): Promise<number> {
    const { token, waitsAsTold } = this.#group;
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const isCounted = dueAtMs >= this.#span.fromMs && dueAtMs < this.#span.toMs;
    if (isCounted) this.tally.sent += 1;
    try {
      const response = await this.#pool.request({ method, path, headers, body });
      await response.body.dump();
      const tookMs = performance.now() - dueAtMs;
      const isShed = response.statusCode === 503 && response.headers['retry-after'] !== undefined;
      if (isCounted) {
        if (response.statusCode < 300) this.tally.okMs.push(tookMs);
        else if (isShed) this.tally.shedMs.push(tookMs);
        if (isShed) this.tally.shed += 1;
        else if (response.statusCode >= 300) this.tally.failed += 1;
      }
      return isShed && waitsAsTold ? 1_000 * Number(response.headers['retry-after']) : 0;
    } catch {
      // The pool is gone, or the gateway.
      if (isCounted) this.tally.failed += 1;
      return 0;
    }
  }
}

const plan = PlanSchema.parse(JSON.parse(await text(process.stdin)));
const startedAtMs = performance.now();
const groups = plan.groups.map((group) => new Clients(group, plan, startedAtMs));
await Promise.all(groups.map((group) => group.run()));
console.log(JSON.stringify(groups.map(({ tally }) => tally.seen(plan.durationMs))));
