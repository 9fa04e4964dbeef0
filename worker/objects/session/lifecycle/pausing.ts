/**
 * Pause and resume: the host stops the sandbox where it stands. What its host says is the state: an answer that comes
 * after its caller was let go, or a restart of this object, still moves the session.
 */
import { type ErrorCode, type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import { isErrorCode } from '../../../../shared/problem.ts';
import type { Deadlines } from '../executions/deadlines.ts';
import type { Dispatch } from '../executions/dispatch.ts';
import type { Executions } from '../executions/executions.ts';
import type { SessionLink } from '../link/link.ts';
import { isToBeSent } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';

/** A host lets what is being stopped end first, which takes it four seconds at most. */
const ANSWER_MS = 10_000;

export interface PausingPort {
  /** The session moved: whoever reads along is told, what waits is sent, the alarm is set. */
  moved(): void;
}

export class Pausing {
  readonly #row: SessionRow;
  readonly #executions: Executions;
  readonly #dispatch: Dispatch;
  readonly #deadlines: Deadlines;
  readonly #link: () => SessionLink;
  readonly #port: PausingPort;
  #turns: Promise<unknown> = Promise.resolve();
  #asked: { jti: string | undefined; atMs: number; settle: (outcome: Outcome<null>) => void } | undefined;

  constructor(parts: {
    row: SessionRow;
    executions: Executions;
    dispatch: Dispatch;
    deadlines: Deadlines;
    link: () => SessionLink;
    port: PausingPort;
  }) {
    this.#row = parts.row;
    this.#executions = parts.executions;
    this.#dispatch = parts.dispatch;
    this.#deadlines = parts.deadlines;
    this.#link = parts.link;
    this.#port = parts.port;
  }

  /** Whether the host was asked and has not answered: nothing new is sent to it meanwhile. */
  get isPending(): boolean {
    return this.#asked !== undefined;
  }

  pause(): Promise<Outcome<null>> {
    return this.#inTurn(async () => {
      const { state, sandbox } = this.#row.record;
      if (state === 'paused') return success(null);
      if (state !== 'running') return notNow(this.#row);
      if (sandbox === 'attaching' || this.#row.record.pendingSnapshot !== null) {
        return failure('session_not_running', 'the sandbox, or a snapshot of it, is being made', {
          retry_after_s: 1,
        });
      }
      // Without a sandbox there is nothing to stop.
      if (sandbox === 'lost') this.paused();
      return this.#row.record.state === 'paused' ? success(null) : this.#ask('pause');
    });
  }

  resume(): Promise<Outcome<null>> {
    return this.#inTurn(async () => {
      const { state, sandbox } = this.#row.record;
      if (state === 'running') return success(null);
      if (state !== 'paused' || this.#row.record.pendingSnapshot !== null) return notNow(this.#row);
      if (sandbox !== 'ready') this.resumed();
      return this.#row.record.state === 'running' ? success(null) : this.#ask('resume');
    });
  }

  /** The sandbox stands still. */
  paused(): void {
    if (this.#row.maybe?.state === 'running') {
      // From the asking on, so that no pause of the host is longer than the one that is counted here.
      this.#row.move('paused', { pausedAtMs: this.#asked?.atMs ?? Date.now() });
      for (const record of this.#executions.open) this.#deadlines.disarm(record);
      this.#port.moved();
    }
    this.#settle(success(null));
  }

  /** The sandbox runs again: no clock has counted the time between. */
  resumed(): void {
    if (this.#row.maybe?.state === 'paused') {
      this.#goOn();
      this.#port.moved();
    }
    this.#settle(success(null));
  }

  #goOn(): void {
    const { pausedAtMs, lastActivityAtMs, expiresAtMs } = this.#row.record;
    const pausedMs = pausedAtMs === null ? 0 : Math.max(0, Date.now() - pausedAtMs);
    for (const record of this.#executions.open) {
      if (isToBeSent(record) || record.deadlineAtMs === null) continue;
      this.#executions.patch(record, {
        deadlineAtMs: record.deadlineAtMs + pausedMs,
        sentAtMs: record.sentAtMs === null ? null : record.sentAtMs + pausedMs,
      });
    }
    this.#row.move('running', {
      pausedAtMs: null,
      lastActivityAtMs: lastActivityAtMs + pausedMs,
      expiresAtMs: expiresAtMs === null ? null : expiresAtMs + pausedMs,
    });
    for (const record of this.#executions.open) {
      if (this.#executions.isAwaited(record)) this.#deadlines.arm(record);
    }
  }

  /** Whether the grant was one of these. */
  refused(jti: string | null, code: string, detail: string): boolean {
    if (jti === null || this.#asked?.jti !== jti) return false;
    this.#settle(failure(codeOf(code), detail));
    return true;
  }

  /** The sandbox is gone, or the session ends. */
  cancel(why: Failure): void {
    this.#settle(why);
  }

  async #ask(act: 'pause' | 'resume'): Promise<Outcome<null>> {
    this.#link().dropIfSilent(Date.now());
    if (!this.#link().isUp) return linkDown();
    const { promise, resolve } = Promise.withResolvers<Outcome<null>>();
    const asked = { jti: undefined as string | undefined, atMs: Date.now(), settle: resolve };
    this.#asked = asked;
    const timer = setTimeout(
      () => resolve(failure('host_unresponsive', 'the host did not answer in time')),
      ANSWER_MS,
    );
    try {
      const sent = await this.#dispatch.command(act, new Uint8Array(0), (jti) => {
        asked.jti = jti;
        return true;
      });
      return sent ? await promise : linkDown();
    } finally {
      clearTimeout(timer);
      if (this.#asked === asked) this.#asked = undefined;
      void this.#dispatch.pump();
    }
  }

  #settle(outcome: Outcome<null>): void {
    this.#asked?.settle(outcome);
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turns.then(work);
    this.#turns = turn.catch(() => undefined);
    return turn;
  }
}

export function notNow(row: SessionRow): Failure {
  const { state, errorCode } = row.record;
  switch (state) {
    case 'destroying':
    case 'destroyed':
      return failure('not_found', 'no such session, or not yours');
    case 'error':
      return failure('session_failed', `the session has failed: ${errorCode ?? 'unknown'}`);
    default:
      return failure('session_not_running', `the session is ${state}`, { retry_after_s: 1 });
  }
}

function codeOf(code: string): ErrorCode {
  return isErrorCode(code) ? code : 'sandbox_failed';
}

function linkDown(): Failure {
  return failure('host_unresponsive', 'the link to the host is down', { retry_after_s: 1 });
}
