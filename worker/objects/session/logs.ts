/** The event logs that are in memory: those of open executions, and of ended ones that still have a ring. */
import { READER_GRACE_MS } from '../../../shared/limits.ts';
import { EventLog } from './event-log.ts';
import type { ExecutionRecord } from './records.ts';
import type { SessionStore } from './store.ts';

export class EventLogs {
  readonly #store: SessionStore;
  readonly #onRelease: () => void;
  readonly #logs = new Map<number, EventLog>();

  constructor(store: SessionStore, onRelease: () => void) {
    this.#store = store;
    this.#onRelease = onRelease;
  }

  of(record: Pick<ExecutionRecord, 'n'>): EventLog {
    const known = this.#logs.get(record.n);
    if (known !== undefined) return known;
    return this.#add(record.n, false);
  }

  /** The log of an execution that was accepted just now. */
  begin(record: Pick<ExecutionRecord, 'n'>): void {
    this.#add(record.n, true);
  }

  #add(n: number, isNew: boolean): EventLog {
    const log = new EventLog(n, this.#store, { onRelease: this.#onRelease, isNew });
    this.#logs.set(n, log);
    return log;
  }

  /** The log of an ended execution, which is not kept unless it was. */
  ofEnded(record: Pick<ExecutionRecord, 'n'>): EventLog {
    const known = this.#logs.get(record.n);
    if (known !== undefined) return known;
    const log = new EventLog(record.n, this.#store, { onRelease: this.#onRelease, isNew: false });
    log.end();
    return log;
  }

  end(record: Pick<ExecutionRecord, 'n'>): void {
    const log = this.#logs.get(record.n);
    if (log === undefined) return;
    log.end();
    if (log.hasRing) setTimeout(() => this.#logs.delete(record.n), READER_GRACE_MS);
    else this.#logs.delete(record.n);
  }

  flush(): void {
    for (const log of this.#logs.values()) log.flush();
  }

  /** The frames that were held are of a stream that is over. */
  neverHold(): void {
    for (const log of this.#logs.values()) log.neverHold();
  }

  /** The first frame that must not be acknowledged yet. */
  get heldFrom(): number | undefined {
    let held: number | undefined;
    for (const log of this.#logs.values()) {
      const from = log.heldFrom;
      if (from !== undefined && (held === undefined || from < held)) held = from;
    }
    return held;
  }
}
