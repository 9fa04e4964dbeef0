/**
 * What of the host's stream of frames was taken in, is kept, and was acknowledged. Frames are kept in batches: a write
 * costs as much as a round trip, and an acknowledgement is worth nothing before it.
 */
import type { SelectiveAck } from './link.ts';
import type { EventLogs } from './logs.ts';

const BATCH_BYTES = 262_144;
const BATCH_MS = 10;

export interface AcknowledgementPort {
  /** Writes what is pending, and `lastSeq` with it. */
  write(lastSeq: number): void;
  /** `beyond` is worth sending only to a host that takes it. */
  send(seq: number, beyond: SelectiveAck | undefined): void;
  takesSelective(): boolean;
}

export class Acknowledgement {
  readonly #logs: EventLogs;
  readonly #port: AcknowledgementPort;
  #seen: number;
  #sent = 0;
  #sentBeyond = 0;
  #bytes = 0;
  #isDirty = false;
  /** When the oldest frame that waits for a batch came; undefined when none waits. */
  #waitsSinceMs: number | undefined;
  #hasTimer = false;

  constructor(logs: EventLogs, lastSeq: number, port: AcknowledgementPort) {
    this.#logs = logs;
    this.#port = port;
    this.#seen = lastSeq;
  }

  /** A link came up. Gives the highest frame of its stream that is kept. */
  restart(isSameStream: boolean): number {
    // Only written: an acknowledgement now would go to the new link, which has said nothing yet.
    this.#write();
    if (!isSameStream) {
      this.#logs.neverHold();
      this.#seen = 0;
    }
    this.#sent = this.#ackable();
    this.#sentBeyond = 0;
    return this.#sent;
  }

  hasSeen(seq: number): boolean {
    return seq <= this.#seen;
  }

  /** Whether the host was told that this frame is kept, and need not send it. */
  hasAcknowledged(seq: number): boolean {
    return seq <= this.#sent;
  }

  get seen(): number {
    return this.#seen;
  }

  /** A frame was taken in. `needsWrite`: something of it has to be in a row before it is acknowledged. */
  took(seq: number, bytes: number, needsWrite: boolean): void {
    this.#seen = Math.max(this.#seen, seq);
    this.#bytes += bytes;
    this.#isDirty ||= needsWrite;
    if (this.#bytes >= BATCH_BYTES) this.flush();
    else this.schedule();
  }

  /** A timer that is under way is left alone: to clear and set it anew for every call would cost more than it saves. */
  schedule(): void {
    this.#waitsSinceMs ??= Date.now();
    if (this.#hasTimer) return;
    this.#hasTimer = true;
    setTimeout(() => this.#tick(), BATCH_MS);
  }

  #tick(): void {
    this.#hasTimer = false;
    if (this.#waitsSinceMs === undefined) return;
    const waitedMs = Date.now() - this.#waitsSinceMs;
    if (waitedMs >= BATCH_MS - 1) {
      this.flush();
      return;
    }
    this.#hasTimer = true;
    setTimeout(() => this.#tick(), BATCH_MS - waitedMs);
  }

  /** A frame that is acknowledged at once: what it says is in a row already, or is nothing to keep. */
  tookLast(seq: number): void {
    this.#seen = Math.max(this.#seen, seq);
    this.flush();
  }

  /** The caller is about to write everything pending, this frame's part in it too. */
  writes(seq: number): void {
    this.#seen = Math.max(this.#seen, seq);
    this.#isDirty = false;
  }

  flush(): void {
    this.#write();
    const ackable = this.#ackable();
    const beyond = ackable < this.#seen ? this.#beyond() : undefined;
    if (ackable <= this.#sent && beyond === undefined) return;
    this.#sent = Math.max(this.#sent, ackable);
    this.#sentBeyond = beyond?.seq ?? this.#sentBeyond;
    this.#port.send(this.#sent, beyond);
  }

  /** A slow reader of one execution must not take the room of the others. */
  #beyond(): SelectiveAck | undefined {
    if (this.#seen <= this.#sentBeyond || !this.#port.takesSelective()) return undefined;
    const held = this.#logs.heldBesideOthers;
    return held.length === 0 ? undefined : { seq: this.#seen, held };
  }

  #write(): void {
    this.#bytes = 0;
    this.#waitsSinceMs = undefined;
    if (!this.#isDirty) return;
    this.#isDirty = false;
    this.#port.write(this.#seen);
  }

  #ackable(): number {
    const held = this.#logs.heldFrom;
    return held === undefined ? this.#seen : Math.min(this.#seen, held - 1);
  }
}
