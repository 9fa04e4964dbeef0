/** The session's row, in memory and on disk at once. */
import { moveSession, type SessionState } from '../../../../shared/lifecycle.ts';
import { FIRST_PREVIOUS_SHA256 } from '../../../../shared/receipt.ts';
import type { Caller } from '../../caller.ts';
import type { HeldSnapshot } from '../suspension/held-snapshot.ts';
import type { SessionFacts, SessionRecord } from './records.ts';
import type { SessionStore } from './store.ts';

export class SessionRow {
  readonly #store: SessionStore;
  readonly #onMove: (from: SessionState) => void;
  #record: SessionRecord | undefined;

  /** `onMove` belongs to the write of the move. */
  constructor(store: SessionStore, onMove: (from: SessionState) => void) {
    this.#store = store;
    this.#onMove = onMove;
    this.#record = store.session();
    if (this.#record !== undefined) {
      this.#record.grantSeq = Math.max(this.#record.grantSeq, store.lastGrantSeq());
    }
  }

  get maybe(): SessionRecord | undefined {
    return this.#record;
  }

  /** For code that runs only where the session is known to exist. */
  get record(): SessionRecord {
    if (this.#record === undefined) throw new Error('the session does not exist');
    return this.#record;
  }

  /** Whether the session takes calls and links: it exists and has not failed or ended. */
  get isLive(): boolean {
    const state = this.#record?.state;
    return state !== undefined && state !== 'error' && state !== 'destroying' && state !== 'destroyed';
  }

  /** The record, when it is the caller's and not destroyed. */
  ownedBy(caller: Caller): SessionRecord | undefined {
    const record = this.#record;
    return record !== undefined && record.state !== 'destroyed' && isOwner(record, caller)
      ? record
      : undefined;
  }

  create(
    facts: SessionFacts,
    { lifetimeMs, snapshot }: { lifetimeMs: number | null; snapshot: HeldSnapshot | null },
  ): void {
    // A create that failed may be tried again with the same id; the host must not take its grants for old ones.
    const before = this.#record;
    const record: SessionRecord = {
      facts,
      state: 'creating',
      errorCode: null,
      errorDetail: null,
      epoch: (before?.epoch ?? 0) + 1,
      grantSeq: before?.grantSeq ?? 0,
      sandbox: 'attaching',
      sandboxId: null,
      attachAtMs: facts.createdAtMs,
      hostKeyX: null,
      stateLost: false,
      linkDownAtMs: null,
      pausedAtMs: null,
      snapshot,
      pendingSnapshot: null,
      generation: 0,
      streamId: null,
      lastSeq: 0,
      chainSeq: 0,
      chainSha256: FIRST_PREVIOUS_SHA256,
      lastActivityAtMs: facts.createdAtMs,
      expiresAtMs: lifetimeMs === null ? null : facts.createdAtMs + lifetimeMs,
      destroyAtMs: null,
      destroyTries: 0,
      purgeAtMs: null,
      retentionAtMs: null,
      shell: snapshot?.shell ?? null,
    };
    this.#store.replaceSession(record);
    this.#record = record;
  }

  patch(patch: Partial<SessionRecord>): void {
    this.#store.updateSession(patch);
    Object.assign(this.record, patch);
  }

  /** Moves by the table; a move that it does not have is a fault of this program. */
  move(to: SessionState, patch: Partial<SessionRecord> = {}): void {
    const { state } = this.record;
    const moved = moveSession(state, to);
    if (!moved.ok) throw new Error(moved.detail);
    this.patch({ ...patch, state: moved.value });
    this.#onMove(state);
  }

  /** Taken at once in memory; the caller writes it, here or in the execution's row, before it sends the grant. */
  takeGrantSeq(): number {
    this.record.grantSeq += 1;
    return this.record.grantSeq;
  }
}

export function isOwner(record: SessionRecord, caller: Caller): boolean {
  return record.facts.tenant === caller.tenant && record.facts.subject === caller.subject;
}
