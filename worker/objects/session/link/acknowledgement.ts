/**
 * What of the host's stream of frames was taken in, is kept, and was acknowledged. Frames are kept in batches: a write
 * costs as much as a round trip, and an acknowledgement is worth nothing before it.
 */
import { LINK_WINDOW_BYTES } from '../../../../shared/limits.ts';
import type { EventLogs } from '../event-logs/logs.ts';
import type { SelectiveAck } from './link.ts';

/** Where nothing is to be written, the host has its credit back for each of these. */
const CREDIT_BYTES = LINK_WINDOW_BYTES / 8;
/** A write waits for the disk, a few milliseconds whatever its size; the host sends the other half meanwhile. */
const WRITTEN_BYTES = LINK_WINDOW_BYTES / 2;
/** Readers wait for what is to be written, and a held host for its credit. */
const BATCH_MS = 10;
/**
 * Nobody waits for the rest, as that the end of a call, which is written already, need not be sent again: it is acknowledged
 * with what comes next, as long as it takes no part worth mentioning of the host's credit.
 */
const UNHURRIED_MS = 100;
const UNHURRIED_BYTES = 32_768;

export interface AcknowledgementPort {
  /** Writes what is pending, and `lastSeq` with it. */
  write(lastSeq: number): void;
  /** `beyond` is worth sending only to a host that takes it. */
  send(seq: number, beyond: SelectiveAck | undefined): void;
  takesSelective(): boolean;
}

/** Which frames must not be acknowledged yet. */
export type HeldFrames = Pick<EventLogs, 'heldFrom' | 'heldBesideOthers' | 'neverHold'>;

export class Acknowledgement {
  readonly #logs: HeldFrames;
  readonly #port: AcknowledgementPort;
  #seen: number;
  #sent = 0;
  #sentBeyond = 0;
  #bytes = 0;
  #isDirty = false;
  /** When what waits for a batch has waited for long enough; undefined when nothing waits. */
  #dueAtMs: number | undefined;
  #timer: { id: ReturnType<typeof setTimeout>; atMs: number } | undefined;

  constructor(logs: HeldFrames, lastSeq: number, port: AcknowledgementPort) {
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

  /**
   * A frame was taken in. `needsWrite`: something of it has to be in a row before it is acknowledged; `isAwaited`: somebody
   * waits for that.
   */
  took(
    seq: number,
    bytes: number,
    { needsWrite, isAwaited = needsWrite }: { needsWrite: boolean; isAwaited?: boolean },
  ): void {
    this.#seen = Math.max(this.#seen, seq);
    this.#bytes += bytes;
    this.#isDirty ||= needsWrite;
    if (this.#bytes >= (this.#isDirty ? WRITTEN_BYTES : CREDIT_BYTES)) this.flush();
    else this.#flushWithin(isAwaited || this.#bytes >= UNHURRIED_BYTES ? BATCH_MS : UNHURRIED_MS);
  }

  /** Frames that were held may be acknowledged. */
  schedule(): void {
    this.#flushWithin(BATCH_MS);
  }

  /** A timer that is under way is left alone where it serves: to clear and set it anew costs more than it saves. */
  #flushWithin(ms: number): void {
    const dueAtMs = Math.min(this.#dueAtMs ?? Number.POSITIVE_INFINITY, Date.now() + ms);
    this.#dueAtMs = dueAtMs;
    if (this.#timer !== undefined && this.#timer.atMs <= dueAtMs) return;
    clearTimeout(this.#timer?.id ?? null);
    this.#setTimer(dueAtMs, ms);
  }

  #setTimer(atMs: number, afterMs: number): void {
    this.#timer = { id: setTimeout(() => this.#tick(), afterMs), atMs };
  }

  #tick(): void {
    this.#timer = undefined;
    if (this.#dueAtMs === undefined) return;
    const leftMs = this.#dueAtMs - Date.now();
    if (leftMs <= 1) this.flush();
    else this.#setTimer(this.#dueAtMs, leftMs);
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
    this.#dueAtMs = undefined;
    if (!this.#isDirty) return;
    this.#isDirty = false;
    this.#port.write(this.#seen);
  }

  #ackable(): number {
    const held = this.#logs.heldFrom;
    return held === undefined ? this.#seen : Math.min(this.#seen, held - 1);
  }
}
