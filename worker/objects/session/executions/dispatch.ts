/** Sends executions to the host: of each tool one at a time, in the order of their acceptance. */
import { sha256Hex } from '../../../../shared/digest.ts';
import { utf8 } from '../../../../shared/encoding.ts';
import { type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { GrantAct, Relay } from '../../../../shared/grant.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import { HOST_ANSWER_GRACE_MS, TERMINAL_GRACE_MS } from '../../../../shared/limits.ts';
import type { Configuration } from '../../../configuration.ts';
import { commandFrames } from '../../command-frames.ts';
import type { SessionLink } from '../link/link.ts';
import { type ExecutionRecord, isToBeSent } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { Executions } from './executions.ts';
import { type GrantRequest, issueGrant } from './grants.ts';
import { ExecutionInput } from './input.ts';

/** Grants of one execution that are remembered: each resend after a lost link makes one. */
const MAX_GRANTS = 8;
/** A deadline that a resend has moved stays this far within the bound for every end. */
const RESEND_GRACE_MS = TERMINAL_GRACE_MS - 20_000;

/** Of what is no execution; its grant needs one. */
const COMMAND_TIMEOUT_MS = 30_000;

/** The first version of the protocol whose hosts are told of requests. */
const NAMES_REQUESTS_FROM = 2;
/** The first one whose hosts know a relay of what is kept. */
const KEEPS_OUTPUT_FROM = 2;

export interface DispatchPort {
  /** Whether the host may still be at a call of this lane that was given up, or says soon that it lost its sandbox. */
  isHostBusy(lane: string): boolean;
  /** Makes the sandbox and its link usable; calls `pump` again when they are. */
  prepare(): void;
  /** Makes what has to be there before the execution is sent; false where it is not sent now. */
  secure(record: ExecutionRecord): Promise<boolean>;
  sent(record: ExecutionRecord): void;
}

export class Dispatch {
  readonly #row: SessionRow;
  readonly #executions: Executions;
  readonly #configuration: Configuration;
  readonly #link: () => SessionLink;
  readonly #port: DispatchPort;
  readonly input: ExecutionInput;
  #granting = false;
  #turns: Promise<unknown> = Promise.resolve();

  constructor(parts: {
    row: SessionRow;
    executions: Executions;
    configuration: Configuration;
    link: () => SessionLink;
    port: DispatchPort;
  }) {
    this.#row = parts.row;
    this.#executions = parts.executions;
    this.#configuration = parts.configuration;
    this.#link = parts.link;
    this.#port = parts.port;
    this.input = new ExecutionInput(parts.executions, (record, bytes) => this.#act('stdin', record, bytes));
  }

  /**
   * Takes an execution in whose row does not exist yet: sent at once, its row is written with the grant, in one write;
   * behind others, it is written as it is.
   */
  async take(record: ExecutionRecord): Promise<void> {
    const isNext = !this.#granting && this.#next() === record && !record.rollback;
    if (!isNext) this.#executions.store(record);
    const pumped = this.pump();
    // A snapshot comes first, which takes longer than anybody waits for a call to be taken in.
    if (record.rollback) return;
    try {
      await pumped;
    } finally {
      this.#executions.store(record);
    }
  }

  /** Sends what is next in each lane that is free. */
  async pump(): Promise<void> {
    if (this.#granting) return;
    this.#granting = true;
    try {
      // What was cancelled, or lost its sandbox, while its grant was signed has left the way free, so it is looked again.
      for (let next = this.#sendable(); next !== undefined; next = this.#sendable()) {
        const record = next;
        const isSecure = await this.#port.secure(record);
        if (isTerminal(record.status)) continue;
        if (!isSecure) return;
        await this.#inTurn(() => this.#grant(record, () => this.#mayStart(record)));
      }
    } finally {
      this.#granting = false;
    }
  }

  /** The next execution, where there is a sandbox to send it to. */
  #sendable(): ExecutionRecord | undefined {
    if (this.#row.maybe?.state !== 'running') return undefined;
    const next = this.#next();
    if (next === undefined) return undefined;
    this.#link().dropIfSilent(Date.now());
    if (this.#row.record.sandbox === 'ready' && this.#link().isUp) return next;
    this.#port.prepare();
    return undefined;
  }

  /** The first that waits in a lane in which nothing runs. What may be taken back runs beside nothing else. */
  #next(): ExecutionRecord | undefined {
    const { open } = this.#executions;
    const running = open.filter((record) => !isToBeSent(record));
    if (running.some(({ rollback }) => rollback)) return undefined;
    const busy = new Set(running.map((record) => this.laneOf(record)));
    for (const record of open.filter(isToBeSent)) {
      const lane = this.laneOf(record);
      const isFree = !busy.has(lane) && !this.#port.isHostBusy(lane);
      if (record.rollback) return isFree && busy.size === 0 ? record : undefined;
      if (isFree) return record;
      busy.add(lane);
    }
    return undefined;
  }

  /** Each tool runs beside the others, where the host can: nothing of one waits for another. */
  laneOf({ tool }: ExecutionRecord): string {
    return this.#link().hasLanes ? tool : '';
  }

  #mayStart(record: ExecutionRecord): boolean {
    return this.#row.record.state === 'running' && !this.#port.isHostBusy(this.laneOf(record));
  }

  /** Again after a lost link: a host that has the execution already knows it by its id. */
  async resend(record: ExecutionRecord): Promise<void> {
    if (record.status === 'granted' && !isToBeSent(record)) {
      await this.#inTurn(() => this.#grant(record, () => true));
    }
  }

  async #grant(record: ExecutionRecord, isWanted: () => boolean): Promise<void> {
    const payload = utf8(record.arguments ?? '{}');
    const before = record.status;
    const seq = this.#row.takeGrantSeq();
    const { epoch, facts, stateLost } = this.#row.record;
    const grant = await issueGrant(
      facts,
      {
        act: 'execute',
        epoch,
        seq,
        payload: { sha256: record.argsSha256 },
        timeoutMs: record.timeoutMs,
        constraints: this.#link().looksAtConstraints ? record.constraints : null,
        execution: { ...record, relay: this.#relayOf(record) },
      },
      this.#configuration,
    );
    const isStale = epoch !== this.#row.record.epoch || this.#row.record.sandbox !== 'ready';
    if (record.status !== before || isStale || !isWanted()) return;
    const nowMs = Date.now();
    const firstSentAtMs = record.sentAtMs ?? nowMs;
    const deadlineAtMs = Math.min(
      nowMs + record.timeoutMs + HOST_ANSWER_GRACE_MS,
      firstSentAtMs + record.timeoutMs + RESEND_GRACE_MS,
    );
    // With the row of the execution, whose grant carries the number, nothing else has to be written.
    this.#executions.patch(record, {
      status: 'granted',
      epoch,
      grants: [...record.grants, { jti: grant.jti, sha256: grant.sha256, seq }].slice(-MAX_GRANTS),
      sentAtMs: firstSentAtMs,
      deadlineAtMs,
      stateLost: record.stateLost || stateLost,
      placeMs: record.sentAtMs === null ? nowMs - record.createdAtMs : record.placeMs,
    });
    if (stateLost) this.#row.patch({ stateLost: false });
    const link = this.#link();
    const requestId = link.protocol >= NAMES_REQUESTS_FROM ? record.requestId : undefined;
    link.send(commandFrames(grant.token, payload, requestId));
    this.#port.sent(record);
  }

  #relayOf({ relay }: ExecutionRecord): Relay {
    return relay === 'kept' && this.#link().protocol < KEEPS_OUTPUT_FROM ? 'bounded' : relay;
  }

  /** Bytes for the standard input of what runs; no bytes close it. */
  stdin(record: ExecutionRecord, bytes: Uint8Array, eof: boolean): Promise<Outcome<null>> {
    return this.#inTurn(async () => {
      // What came behind the checkpoint would be lost with the sandbox.
      if (this.#row.record.pendingSnapshot !== null) {
        return failure('session_not_running', 'a snapshot of the session is being made', {
          retry_after_s: 1,
        });
      }
      return this.input.write(record, bytes, eof);
    });
  }

  /** The answer to a call of a program; undefined while the link is down. */
  answerCall(record: ExecutionRecord, payload: Uint8Array): Promise<string | undefined> {
    return this.#inTurn(() => this.#act('tool_result', record, payload));
  }

  async interrupt(record: ExecutionRecord): Promise<Outcome<null>> {
    if (!isInFlight(record)) return notRunning();
    // Remembered: with the link down it is sent when the link is back.
    this.#executions.patch(record, { interruptRequested: true });
    await this.#inTurn(() => this.#act('interrupt', record, new Uint8Array(0)));
    return success(null);
  }

  /**
   * Something for the whole sandbox; `named` is told the grant at the moment before it is sent, and says whether it is
   * still wanted. False where it was not sent.
   */
  command(
    act: 'pause' | 'resume' | 'suspend',
    payload: Uint8Array,
    named: (jti: string) => boolean,
  ): Promise<boolean> {
    return this.#inTurn(() => this.#send({ act, timeoutMs: COMMAND_TIMEOUT_MS }, payload, named));
  }

  /** Numbers of grants must come to the host in their order, however long each takes to be signed. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turns.then(work);
    this.#turns = turn.catch(() => undefined);
    return turn;
  }

  /** Gives the grant; undefined where there is no link to send it on. */
  async #act(act: GrantAct, record: ExecutionRecord, payload: Uint8Array): Promise<string | undefined> {
    const { executionId, tool, toolVersion, timeoutMs } = record;
    const execution = { executionId, tool, toolVersion, relay: null, stdin: null };
    let jti: string | undefined;
    const sent = await this.#send({ act, timeoutMs, execution }, payload, (named) => {
      jti = named;
      return true;
    });
    return sent ? jti : undefined;
  }

  async #send(
    command: Pick<GrantRequest, 'act' | 'timeoutMs' | 'execution'>,
    payload: Uint8Array,
    named: (jti: string) => boolean,
  ): Promise<boolean> {
    const { facts, epoch } = this.#row.record;
    const seq = this.#row.takeGrantSeq();
    this.#row.patch({ grantSeq: seq });
    const request = { ...command, epoch, seq, payload: { sha256: await sha256Hex(payload) } };
    const grant = await issueGrant(facts, request, this.#configuration);
    return named(grant.jti) && this.#link().send(commandFrames(grant.token, payload));
  }
}

function isInFlight(record: ExecutionRecord): boolean {
  return !isTerminal(record.status) && !isToBeSent(record);
}

function notRunning(): Failure {
  return failure('execution_not_running', 'the execution is not running');
}
