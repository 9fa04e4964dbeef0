/** What follows for the parts of a session when its link comes up or goes down. */

import { isToBeSent } from '../rows/records.ts';
import type { SessionParts } from '../session-parts.ts';
import type { Acknowledgement } from './acknowledgement.ts';

/** How long a host that was started anew has to tell what became of a sandbox; hosts before this one say nothing of one that lives. */
const LOSS_NOTICE_MS = 5_000;

export class LinkChanges {
  readonly #parts: SessionParts;
  readonly #acknowledgement: Acknowledgement;
  /** The host has begun a new stream: it was started anew, and says in a moment that the sandbox is gone. */
  #lossTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(parts: SessionParts, acknowledgement: Acknowledgement) {
    this.#parts = parts;
    this.#acknowledgement = acknowledgement;
  }

  /** Whether the host is about to say that the sandbox is gone: nothing is sent meanwhile. */
  get isLossExpected(): boolean {
    return this.#lossTimer !== undefined;
  }

  /** Gives the highest frame of the stream that is kept. */
  streamBegins(streamId: string): number {
    const { row } = this.#parts;
    const { streamId: before } = row.record;
    const isSame = before === streamId;
    const acked = this.#acknowledgement.restart(isSame);
    if (!isSame && before !== null) this.#expectLoss();
    if (!isSame) row.patch({ streamId, lastSeq: 0 });
    return acked;
  }

  #expectLoss(): void {
    clearTimeout(this.#lossTimer ?? null);
    this.#lossTimer = setTimeout(() => {
      this.#lossTimer = undefined;
      void this.#resend();
    }, LOSS_NOTICE_MS);
  }

  /** The sandbox outlived the agent of its host. */
  sandboxLives(): void {
    if (!this.isLossExpected) return;
    this.lossKnown();
    void this.#resend();
  }

  /** What was expected is known now. */
  lossKnown(): void {
    clearTimeout(this.#lossTimer ?? null);
    this.#lossTimer = undefined;
  }

  up(): void {
    const { deadlines, dispatch, executions, programs, suspension, transfers } = this.#parts;
    deadlines.linkUp(executions.open, Date.now());
    dispatch.input.linkUp();
    programs.linkUp();
    suspension.linkUp();
    // Of a link that was replaced nobody has said that it is down.
    transfers.linkDown();
    transfers.usable();
    void this.#resend();
  }

  async #resend(): Promise<void> {
    if (this.isLossExpected) return;
    const { dispatch, executions } = this.#parts;
    for (const record of executions.open) {
      if (isToBeSent(record)) continue;
      await dispatch.resend(record);
      if (record.interruptRequested) await dispatch.interrupt(record);
    }
    await dispatch.pump();
  }

  down(): void {
    const { row, transfers } = this.#parts;
    transfers.linkDown();
    if (!row.isLive || row.record.sandbox !== 'ready') return;
    row.patch({ linkDownAtMs: Date.now() });
    this.#parts.look();
  }
}
