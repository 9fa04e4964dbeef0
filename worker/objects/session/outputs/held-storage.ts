/** What the long outputs of a session hold of their tenant's storage: all that is in R2, and what is on its way there. */
import type { Failure, Outcome } from '../../../../shared/errors.ts';

/** Held beyond what is needed now, so that the tenant is not asked for every chunk. */
const HELD_AHEAD_BYTES = 8 * 1_048_576;
const MAX_ASKS = 4;

export interface HeldStoragePort {
  /** What is to be held by now. */
  wantedBytes(): number;
  /** There is no room for so much of it. */
  cutBy(excessBytes: number): void;
  /** Holds so many bytes of the tenant's storage for all outputs of the session. */
  hold(bytes: number, isStored: boolean): Promise<Outcome<null>>;
  /** Written before the tenant is told of more, so that what is held, or stored under it, is never forgotten. */
  write(bytes: number): void;
}

export class HeldStorage {
  readonly #port: HeldStoragePort;
  #bytes: number;
  #isTold: boolean;
  #turns: Promise<unknown> = Promise.resolve();

  constructor(bytes: number, port: HeldStoragePort) {
    this.#port = port;
    this.#bytes = bytes;
    this.#isTold = bytes === 0;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether the tenant is known to hold just that. */
  get isTold(): boolean {
    return this.#isTold;
  }

  /** Holds what is wanted; where that is too much, it is cut to what there is. */
  reserve(): Promise<void> {
    const turn = this.#turns.then(() => this.#reserveNow());
    this.#turns = turn.catch(() => undefined);
    return turn;
  }

  async #reserveNow(): Promise<void> {
    for (let asks = 0; asks < MAX_ASKS; asks += 1) {
      const wanted = this.#port.wantedBytes();
      if (this.#isTold && wanted <= this.#bytes) return;
      const ahead = await this.#hold(wanted + HELD_AHEAD_BYTES, false);
      if (ahead.ok) return;
      const held = await this.#hold(wanted, false);
      if (held.ok) return;
      const room = roomOf(held);
      const target = Math.max(this.#bytes, Math.min(wanted, this.#bytes + room));
      if (target > this.#bytes) await this.#hold(target, false);
      this.#port.cutBy(wanted - this.#bytes);
    }
  }

  async giveBack(): Promise<void> {
    const wanted = this.#port.wantedBytes();
    if (!this.#isTold || wanted < this.#bytes) await this.#hold(wanted, true);
  }

  /** Throws where the tenant does not hear of it. */
  async giveBackAll(): Promise<void> {
    const told = await this.#port.hold(0, true);
    if (!told.ok) throw new Error(told.detail);
    this.#set(0);
  }

  async #hold(bytes: number, isStored: boolean): Promise<Outcome<null>> {
    const before = this.#bytes;
    if (bytes > before) this.#port.write(bytes);
    const told = await this.#port.hold(bytes, isStored);
    this.#set(told.ok ? bytes : before);
    this.#isTold ||= told.ok;
    return told;
  }

  #set(bytes: number): void {
    this.#bytes = bytes;
    this.#port.write(bytes);
  }
}

/** What is left of the limit that refused. A refusal that names none says that the tenant did not answer. */
function roomOf(refused: Failure): number {
  const { limit } = refused;
  if (limit === undefined) throw new Error(refused.detail);
  return Math.max(0, limit.limit - limit.used);
}
