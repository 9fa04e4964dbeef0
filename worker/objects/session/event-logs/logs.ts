/** The event logs that are in memory: those of open executions, and of ended ones that still have a ring. */
import { READER_GRACE_MS } from '../../../../shared/limits.ts';
import type { SessionStore } from '../rows/store.ts';
import { EventLog, type LoggedExecution, type OutputsOfLog, type ReaderPosition } from './event-log.ts';

/** Readers of one session at once: each may keep the ring of a log alive. */
const MAX_READERS = 32;
/** Rings of ended executions that wait for a reader to come back. */
const MAX_KEPT_RINGS = 4;

export class EventLogs {
  readonly #store: SessionStore;
  readonly #onRelease: () => void;
  readonly #outputs: OutputsOfLog;
  readonly #logs = new Map<number, EventLog>();
  /** Numbers of ended executions whose logs are kept for their rings, oldest first. */
  readonly #kept = new Set<number>();
  readonly #readers = new Set<ReaderPosition>();

  constructor(store: SessionStore, outputs: OutputsOfLog, onRelease: () => void) {
    this.#store = store;
    this.#outputs = outputs;
    this.#onRelease = onRelease;
  }

  of(record: LoggedExecution): EventLog {
    const known = this.#logs.get(record.n);
    if (known !== undefined) return known;
    return this.#add(record, false);
  }

  /** The log of an execution that was accepted just now. */
  begin(record: LoggedExecution): void {
    this.#add(record, true);
  }

  #add(record: LoggedExecution, isNew: boolean): EventLog {
    const log = this.#create(record, isNew);
    this.#logs.set(record.n, log);
    return log;
  }

  #create(record: LoggedExecution, isNew: boolean): EventLog {
    return new EventLog(record, this.#store, {
      onRelease: this.#onRelease,
      isNew,
      readers: this.#readers,
      outputs: this.#outputs,
    });
  }

  get takesReaders(): boolean {
    return this.#readers.size < MAX_READERS;
  }

  /** The log of an ended execution, which is not kept unless it was. */
  ofEnded(record: LoggedExecution): EventLog {
    const known = this.#logs.get(record.n);
    if (known !== undefined) return known;
    const log = this.#create(record, false);
    log.end();
    return log;
  }

  end(record: LoggedExecution): void {
    const log = this.#logs.get(record.n);
    if (log === undefined) return;
    log.end();
    if (!log.hasRing) {
      this.#logs.delete(record.n);
      return;
    }
    this.#kept.add(record.n);
    setTimeout(() => this.#letGo(record.n), READER_GRACE_MS);
    const [oldest] = this.#kept;
    if (this.#kept.size > MAX_KEPT_RINGS && oldest !== undefined) this.#letGo(oldest);
  }

  #letGo(n: number): void {
    this.#kept.delete(n);
    this.#logs.get(n)?.letGo();
    this.#logs.delete(n);
  }

  flush(): void {
    for (const log of this.#logs.values()) log.flush();
  }

  /** The storage of long outputs takes more. */
  roomAgain(): void {
    for (const log of this.#logs.values()) log.roomAgain();
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

  /** Executions of which frames are held, where others have frames that are not. */
  get heldBesideOthers(): string[] {
    const open = [...this.#logs.values()].filter((log) => !log.hasEnded);
    const held = open.filter((log) => log.heldFrom !== undefined);
    return held.length < open.length ? held.map((log) => log.executionId) : [];
  }
}
