/** What the journal's entries add up to. Applying the same entries always gives the same state. */
import type { Envelope } from '../../shared/dsse.ts';
import type { ExecutionOutcome } from '../../shared/execution.ts';
import type { SequencedUp } from '../../shared/frames.ts';
import { GRANT_MEMORY_S } from '../../shared/limits.ts';
import type { JournalEntry, StartedEntry } from './entries.ts';

export interface StoredFrame {
  header: SequencedUp;
  payload: Uint8Array;
}

export interface FinishedExecution {
  receiptSeq: number;
  receiptSha256: string;
  outcome: ExecutionOutcome;
  receipt: Envelope;
  frames: StoredFrame[];
}

export interface ExecutionState {
  started: StartedEntry;
  finished: FinishedExecution | null;
  acknowledged: boolean;
}

export interface ChainHead {
  /** Number of the last receipt; 0 before the first. */
  seq: number;
  sha256: string;
}

export interface SessionState {
  sessionId: string;
  tenant: string;
  epoch: number;
  sandboxId: string;
  image: string;
  attachJti: string;
  /** Highest number seen in a grant of the session. */
  seq: number;
  changedAtS: number;
  /** `lost`: the sandbox is gone and the edge does not know yet. */
  attachment: 'attached' | 'lost' | 'gone';
  chain: ChainHead;
  executions: Map<string, ExecutionState>;
}

/** Ended and acknowledged executions whose receipts are kept per session, to answer a repeated grant. */
export const MAX_KEPT_EXECUTIONS = 64;

export class JournalState {
  keySet: { version: number; token: string } | null = null;
  readonly sessions = new Map<string, SessionState>();

  apply(entry: JournalEntry, payload: Uint8Array): void {
    switch (entry.kind) {
      case 'key_set':
        this.keySet = { version: entry.version, token: entry.token };
        return;
      case 'attached':
        this.#attach(entry);
        return;
      case 'session':
        this.sessions.set(entry.session_id, sessionOf(entry));
        return;
      case 'started': {
        const session = this.sessions.get(entry.session_id);
        if (session === undefined) return;
        session.seq = Math.max(session.seq, entry.seq);
        session.executions.set(entry.execution_id, { started: entry, finished: null, acknowledged: false });
        return;
      }
      case 'finished':
        this.#finish(entry, payload);
        return;
      case 'acknowledged':
        this.#acknowledge(entry.session_id, entry.execution_id);
        return;
      case 'detached': {
        const session = this.sessions.get(entry.session_id);
        if (session === undefined || session.epoch !== entry.epoch) return;
        session.changedAtS = entry.at_s;
        session.attachment = entry.told ? 'gone' : 'lost';
        // Nothing can be granted to this epoch any more, so its receipts answer nobody.
        if (entry.told) session.executions.clear();
        return;
      }
    }
  }

  #attach(entry: Extract<JournalEntry, { kind: 'attached' }>): void {
    const former = this.sessions.get(entry.session_id);
    this.sessions.set(entry.session_id, {
      ...sessionOf({ ...entry, attachment: 'attached' }),
      seq: Math.max(entry.seq, former?.seq ?? 0),
      executions: former?.executions ?? new Map(),
    });
    // The edge that moved on to this epoch takes nothing of a lower one.
    for (const [executionId, execution] of former?.executions ?? []) {
      if (execution.finished !== null) this.#acknowledge(entry.session_id, executionId);
    }
  }

  #finish(entry: Extract<JournalEntry, { kind: 'finished' }>, payload: Uint8Array): void {
    const session = this.sessions.get(entry.session_id);
    const execution = session?.executions.get(entry.execution_id);
    if (session === undefined || execution === undefined) return;
    let offset = 0;
    const frames: StoredFrame[] = [];
    for (const { header, bytes } of entry.frames) {
      if ('seq' in header) frames.push({ header, payload: payload.subarray(offset, offset + bytes) });
      offset += bytes;
    }
    execution.finished = {
      receiptSeq: entry.receipt_seq,
      receiptSha256: entry.receipt_sha256,
      outcome: entry.outcome,
      receipt: entry.receipt,
      frames,
    };
    // A receipt of a former epoch is behind where the edge said that the chain stands, or was never taken.
    if (entry.epoch === session.epoch && entry.receipt_seq > session.chain.seq) {
      session.chain = { seq: entry.receipt_seq, sha256: entry.receipt_sha256 };
    }
  }

  #acknowledge(sessionId: string, executionId: string): void {
    const session = this.sessions.get(sessionId);
    const execution = session?.executions.get(executionId);
    if (session === undefined || execution?.finished === null || execution === undefined) return;
    execution.acknowledged = true;
    execution.finished.frames = [];
    let surplus = session.executions.size - MAX_KEPT_EXECUTIONS;
    for (const [oldest, { acknowledged }] of session.executions) {
      if (surplus <= 0) return;
      if (acknowledged) session.executions.delete(oldest);
      surplus -= 1;
    }
  }

  /** The fewest entries that give this state again, without sessions that no live grant can name. */
  *compacted(nowS: number): Generator<{ entry: JournalEntry; payloads: Uint8Array[] }> {
    if (this.keySet !== null) yield { entry: { kind: 'key_set', ...this.keySet }, payloads: [] };
    for (const session of this.sessions.values()) {
      if (isForgettable(session, nowS)) continue;
      yield { entry: sessionEntry(session), payloads: [] };
      for (const [executionId, execution] of session.executions) {
        yield { entry: execution.started, payloads: [] };
        if (execution.finished !== null) yield finishedEntry(execution.started, execution.finished);
        if (execution.acknowledged) {
          const entry = { kind: 'acknowledged' as const, session_id: session.sessionId };
          yield { entry: { ...entry, epoch: session.epoch, execution_id: executionId }, payloads: [] };
        }
      }
    }
  }

  forgetOld(nowS: number): void {
    for (const session of this.sessions.values()) {
      if (isForgettable(session, nowS)) this.sessions.delete(session.sessionId);
    }
  }
}

function isForgettable(session: SessionState, nowS: number): boolean {
  return session.attachment !== 'attached' && nowS - session.changedAtS > GRANT_MEMORY_S;
}

function sessionOf(entry: Omit<Extract<JournalEntry, { kind: 'session' }>, 'kind'>): SessionState {
  return {
    sessionId: entry.session_id,
    tenant: entry.tenant,
    epoch: entry.epoch,
    sandboxId: entry.sandbox_id,
    image: entry.image,
    attachJti: entry.jti,
    seq: entry.seq,
    changedAtS: entry.at_s,
    attachment: entry.attachment,
    chain: { seq: entry.receipt_seq, sha256: entry.receipt_sha256 },
    executions: new Map(),
  };
}

function sessionEntry(session: SessionState): JournalEntry {
  return {
    kind: 'session',
    session_id: session.sessionId,
    epoch: session.epoch,
    tenant: session.tenant,
    sandbox_id: session.sandboxId,
    image: session.image,
    jti: session.attachJti,
    seq: session.seq,
    at_s: session.changedAtS,
    attachment: session.attachment,
    receipt_seq: session.chain.seq,
    receipt_sha256: session.chain.sha256,
  };
}

export function finishedEntry(
  started: StartedEntry,
  finished: FinishedExecution,
): { entry: JournalEntry; payloads: Uint8Array[] } {
  return {
    entry: {
      kind: 'finished',
      session_id: started.session_id,
      epoch: started.epoch,
      execution_id: started.execution_id,
      receipt_seq: finished.receiptSeq,
      receipt_sha256: finished.receiptSha256,
      outcome: finished.outcome,
      receipt: finished.receipt,
      frames: finished.frames.map(({ header, payload }) => ({ header, bytes: payload.length })),
    },
    payloads: finished.frames.map(({ payload }) => payload),
  };
}
