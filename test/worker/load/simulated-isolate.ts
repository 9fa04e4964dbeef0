/**
 * An isolate as a queue with one thread: what is ready waits in order, and each request is several turns of work with waits
 * for objects between. Time is counted, not spent.
 */
import { Shedding } from '../../../worker/load/shedding.ts';

export interface Stream {
  tenant: string;
  subject: string;
  perSecond: number;
  fromMs?: number;
  toMs?: number;
}

export interface Outcome {
  admitted: number;
  refused: number;
  answered: number;
  latenciesMs: number[];
}

/** Of the thread, for a request that is let in, and for one that is refused: as workerd takes them, of which all is one thread. */
const TURNS = 8;
const TURN_MS = 0.7;
const REFUSAL_MS = 0.34;
/** For an object, between two turns. */
const AWAY_MS = 3;
const PROBE_MS = 10;
const PAUSE_MS = 15;
const LATE_MS = 25;
/** What the edge may take for a call. */
const SLOW_MS = 100;

const CALL_MS = TURNS * TURN_MS;
export const CAPACITY_PER_S = 1_000 / CALL_MS;

/** What part of the capacity there is for calls where so many times as many come, and the others are refused. */
export function leftBesideRefusals(times: number): number {
  const refusal = REFUSAL_MS / CALL_MS;
  return Math.min(times, (1 - times * refusal) / (1 - refusal));
}

interface Task {
  readyAtMs: number;
  run: (nowMs: number) => number;
}

export class SimulatedIsolate {
  readonly #shedding: Pick<Shedding, 'admit'>;
  readonly outcomes = new Map<string, Outcome>();
  #tasks: Task[] = [];
  #lagMs = 0;
  #probeDueMs: number | undefined;

  constructor(shedding: Pick<Shedding, 'admit'> = new Shedding()) {
    this.#shedding = shedding;
  }

  /** Counts what comes after `countFromMs`. */
  run(streams: readonly Stream[], { forMs, countFromMs }: { forMs: number; countFromMs: number }): void {
    for (const stream of streams) this.#arrivals(stream, forMs, countFromMs);
    this.#probe(0);
    let nowMs = 0;
    for (;;) {
      const next = this.#pop();
      if (next === undefined || nowMs > forMs) return;
      nowMs = Math.max(nowMs, next.readyAtMs);
      nowMs += next.run(nowMs);
    }
  }

  outcomeOf(name: string): Outcome {
    const known = this.outcomes.get(name);
    if (known !== undefined) return known;
    const fresh = { admitted: 0, refused: 0, answered: 0, latenciesMs: [] };
    this.outcomes.set(name, fresh);
    return fresh;
  }

  #arrivals(
    { tenant, subject, perSecond, fromMs = 0, toMs }: Stream,
    forMs: number,
    countFromMs: number,
  ): void {
    const outcome = this.outcomeOf(`${tenant}/${subject}`);
    for (let atMs = fromMs; atMs < (toMs ?? forMs); atMs += 1_000 / perSecond) {
      const isCounted = atMs >= countFromMs;
      this.#at(atMs, (nowMs) => {
        const lagMs = Math.max(this.#lagMs, this.#probeDueMs === undefined ? 0 : nowMs - this.#probeDueMs);
        const answered = this.#shedding.admit({ tenant, subject }, nowMs, lagMs > LATE_MS);
        if (answered === undefined) {
          if (isCounted) outcome.refused += 1;
          return REFUSAL_MS;
        }
        if (isCounted) outcome.admitted += 1;
        this.#turn(
          TURNS - 1,
          (endedAtMs) => {
            answered(endedAtMs - nowMs > SLOW_MS);
            if (!isCounted) return;
            outcome.answered += 1;
            outcome.latenciesMs.push(endedAtMs - atMs);
          },
          nowMs,
        );
        return TURN_MS;
      });
    }
  }

  #turn(left: number, done: (nowMs: number) => void, nowMs: number): void {
    this.#at(nowMs + AWAY_MS, (startedAtMs) => {
      if (left > 1) this.#turn(left - 1, done, startedAtMs);
      else done(startedAtMs + TURN_MS);
      return TURN_MS;
    });
  }

  #probe(nowMs: number): void {
    const dueMs = nowMs + PROBE_MS;
    this.#probeDueMs = dueMs;
    this.#at(dueMs, (endedAtMs) => {
      this.#lagMs = endedAtMs - dueMs;
      this.#probeDueMs = undefined;
      this.#at(endedAtMs + PAUSE_MS, (againAtMs) => {
        this.#probe(againAtMs);
        return 0;
      });
      return 0;
    });
  }

  /** A heap by the moment at which a task is ready. */
  #at(readyAtMs: number, run: Task['run']): void {
    const tasks = this.#tasks;
    let index = tasks.push({ readyAtMs, run }) - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const [one, other] = [tasks[index], tasks[parent]];
      if (one === undefined || other === undefined || other.readyAtMs <= one.readyAtMs) return;
      [tasks[index], tasks[parent]] = [other, one];
      index = parent;
    }
  }

  #pop(): Task | undefined {
    const tasks = this.#tasks;
    const [first] = tasks;
    const last = tasks.pop();
    if (first === undefined || last === undefined || tasks.length === 0) return first;
    tasks[0] = last;
    for (let index = 0; ; ) {
      const children = [2 * index + 1, 2 * index + 2].filter((child) => child < tasks.length);
      const least = children.reduce(
        (best, child) => (readyAt(tasks[child]) < readyAt(tasks[best]) ? child : best),
        index,
      );
      if (least === index) return first;
      const [one, other] = [tasks[index], tasks[least]];
      if (one === undefined || other === undefined) return first;
      [tasks[index], tasks[least]] = [other, one];
      index = least;
    }
  }
}

function readyAt(task: Task | undefined): number {
  return task?.readyAtMs ?? Number.POSITIVE_INFINITY;
}
