/** Answers on their way into a program: sent again on a new link until the host has them, and only so many at a time. */
import { utf8 } from '../../../../shared/encoding.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { CallRow, ProgramStore } from './store.ts';

/** What a host takes of commands at once is bounded; an answer may be as large as a command. */
const WINDOW_BYTES = 1024 * 1024;

/** Gives undefined while there is no link. */
export type SendAnswer = (record: ExecutionRecord, payload: Uint8Array) => Promise<string | undefined>;

export class AnswerDelivery {
  readonly #store: ProgramStore;
  readonly #send: SendAnswer;
  /** Bytes of those that were sent on this link, by row. */
  readonly #inFlight = new Map<number, number>();

  constructor(store: ProgramStore, send: SendAnswer) {
    this.#store = store;
    this.#send = send;
  }

  /** What was sent on the link before may never have come. */
  linkUp(): void {
    this.#inFlight.clear();
  }

  pump(record: ExecutionRecord): void {
    let bytes = [...this.#inFlight.values()].reduce((sum, one) => sum + one, 0);
    for (const row of this.#store.untaken(record.n)) {
      if (row.answer === null || this.#inFlight.has(row.id)) continue;
      const payload = utf8(row.answer);
      if (bytes > 0 && bytes + payload.length > WINDOW_BYTES) return;
      bytes += payload.length;
      void this.#deliver(record, row, payload);
    }
  }

  async #deliver(record: ExecutionRecord, { id }: CallRow, payload: Uint8Array): Promise<void> {
    this.#inFlight.set(id, payload.length);
    const sent = await this.#send(record, payload);
    // The link is down: on the next one all of them go out again.
    if (sent === undefined) this.#inFlight.delete(id);
  }

  taken(record: ExecutionRecord, row: CallRow): void {
    this.#inFlight.delete(row.id);
    if (!row.isTaken) this.#store.patchCall(row, { isTaken: true });
    this.pump(record);
  }

  ended(rows: readonly CallRow[]): void {
    for (const { id } of rows) this.#inFlight.delete(id);
  }
}
