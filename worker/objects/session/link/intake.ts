/** Takes in the frames of the host: each once, in order, and kept before it is acknowledged. */
import { counterSign } from '../../../../shared/dsse.ts';
import type { SequencedUp } from '../../../../shared/frames.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import { INLINE_BYTES } from '../../../../shared/limits.ts';
import type { Configuration } from '../../../configuration.ts';
import { logWarning } from '../../log.ts';
import type { EventLogs } from '../event-logs/logs.ts';
import type { Executions } from '../executions/executions.ts';
import type { Outputs } from '../outputs/outputs.ts';
import { checkReceipt } from '../receipts/receipt-check.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { LostReason, SandboxKeeper } from '../sandbox/sandbox.ts';
import type { Acknowledgement } from './acknowledgement.ts';

type Frame<Type extends SequencedUp['type']> = Extract<SequencedUp, { type: Type }>;
export type ProgramFrame = Frame<'tool_call' | 'tool_result_taken' | 'waiting' | 'continued'>;

export interface IntakePort {
  ready(): void;
  sandboxLost(reason: LostReason): void;
  /** An execution was refused because its sandbox is gone. */
  sandboxFailed(record: ExecutionRecord): void;
  /** A frame changed nothing. */
  useless(): void;
  inputTaken(executionId: string, bytes: number): void;
  /** The sandbox stands still, or runs again. */
  paused(): void;
  resumed(): void;
  suspended(frame: Frame<'suspended'>): () => void;
  suspendFailed(frame: Frame<'suspend_failed'>): void;
  /** Whether the grant was one of the whole sandbox. */
  commandRefused(frame: { grant_jti: string | null; code: string; detail: string }): boolean;
  /** Whether the grant was one of input, of which the host takes no more. */
  inputRefused(grant: string | null): boolean;
  /** The host signed what is not taken: its chain has gone on, and this one has not. */
  receiptRefused(): void;
  /** Frames of programs: false for one that changes nothing. */
  program(frame: ProgramFrame, payload: Uint8Array): boolean;
  /** The receipt of an execution came after it was given up. */
  endedLate(record: ExecutionRecord): void;
}

export class Intake {
  readonly #row: SessionRow;
  readonly #logs: EventLogs;
  readonly #executions: Executions;
  readonly #sandbox: SandboxKeeper;
  readonly #acknowledgement: Acknowledgement;
  readonly #outputs: Outputs;
  readonly #configuration: Configuration;
  readonly #port: IntakePort;

  constructor(parts: {
    row: SessionRow;
    logs: EventLogs;
    executions: Executions;
    sandbox: SandboxKeeper;
    acknowledgement: Acknowledgement;
    outputs: Outputs;
    configuration: Configuration;
    port: IntakePort;
  }) {
    this.#row = parts.row;
    this.#logs = parts.logs;
    this.#executions = parts.executions;
    this.#sandbox = parts.sandbox;
    this.#acknowledgement = parts.acknowledgement;
    this.#outputs = parts.outputs;
    this.#configuration = parts.configuration;
    this.#port = parts.port;
  }

  take(frame: SequencedUp, payload: Uint8Array): Promise<void> | undefined {
    // What a former sandbox says changes nothing.
    if (frame.epoch !== this.#row.record.epoch || this.#acknowledgement.hasSeen(frame.seq)) {
      if (this.#acknowledgement.hasAcknowledged(frame.seq)) this.#port.useless();
      return undefined;
    }
    switch (frame.type) {
      case 'ready':
        this.#sandbox.ready(frame);
        this.#acknowledgement.tookLast(frame.seq);
        this.#port.ready();
        return undefined;
      case 'started':
        this.#took(frame, payload, this.#executions.started(frame.execution_id, frame.started_at));
        return undefined;
      case 'output':
        return this.#piece(frame, payload, (record) => {
          const { stream, offset } = frame;
          this.#logs.of(record).output({ stream, offset, bytes: payload }, frame.seq);
        });
      case 'tail':
        return this.#piece(frame, payload, (record) => {
          const { stream, offset } = frame;
          this.#logs.of(record).tail({ stream, offset, bytes: payload });
        });
      case 'part':
        return this.#piece(frame, payload, (record) => {
          const { field, index: idx, mime, last } = frame;
          this.#logs.of(record).part({ field, idx, mime, last, bytes: payload });
        });
      case 'stdin_taken':
        this.#port.inputTaken(frame.execution_id, frame.bytes);
        this.#took(frame, payload, false);
        return undefined;
      case 'tool_call':
      case 'tool_result_taken':
      case 'waiting':
      case 'continued':
        if (!this.#port.program(frame, payload)) this.#drop(frame, 'of no program that runs, or again');
        this.#took(frame, payload, true);
        return undefined;
      case 'finished':
        return this.#finished(frame);
      case 'refused':
        this.#refused(frame);
        this.#took(frame, payload, false);
        return undefined;
      case 'paused':
      case 'resumed':
        this.#port[frame.type]();
        this.#acknowledgement.tookLast(frame.seq);
        return undefined;
      case 'suspended': {
        // Kept before it is acknowledged, and only then is its host let go.
        const afterwards = this.#port.suspended(frame);
        this.#acknowledgement.tookLast(frame.seq);
        afterwards();
        return undefined;
      }
      case 'suspend_failed':
        this.#port.suspendFailed(frame);
        this.#acknowledgement.tookLast(frame.seq);
        return undefined;
      case 'sandbox_lost':
        this.#port.sandboxLost(frame.reason);
        this.#acknowledgement.tookLast(frame.seq);
        return undefined;
    }
  }

  #took(frame: SequencedUp, payload: Uint8Array, needsWrite: boolean): void {
    // Parts of a result come just before the end, with which they are written and shown.
    const isAwaited = needsWrite && frame.type !== 'part';
    this.#acknowledgement.took(frame.seq, payload.length, { needsWrite, isAwaited });
  }

  /** A piece of what an open execution wrote; of any other it is dropped. */
  #piece(
    frame: Frame<'output' | 'tail' | 'part'>,
    payload: Uint8Array,
    keep: (record: ExecutionRecord) => void,
  ): undefined {
    const record = this.#executions.open.find(({ executionId }) => executionId === frame.execution_id);
    if (record === undefined || record.status === 'queued') {
      this.#drop(frame, 'no such execution is running');
      return this.#took(frame, payload, false) ?? undefined;
    }
    keep(record);
    this.#took(frame, payload, this.#logs.of(record).pendingBytes > 0);
    return undefined;
  }

  async #finished(frame: Frame<'finished'>): Promise<void> {
    const record = this.#executions.find(frame.execution_id);
    if (record === undefined || record.status === 'queued') {
      this.#refuse(frame, 'no such execution was sent');
    } else if (this.#row.record.state === 'suspended') {
      // An agent died as it restored it. The call never went on there, and does so from the snapshot.
      this.#drop(frame, 'the session is in its snapshot');
    } else if (record.receiptSeq === null) await this.#end(record, frame);
    // Whatever came of it, the frame need not come again. Its acknowledgement is not what anybody waits for.
    this.#acknowledgement.took(frame.seq, 0, { needsWrite: false });
  }

  async #end(record: ExecutionRecord, frame: Frame<'finished'>): Promise<void> {
    const isLate = isTerminal(record.status);
    if (!isLate) await this.#settleOutputs(record);
    const checked = await checkReceipt({
      envelope: frame.receipt,
      outcome: frame.outcome,
      record,
      session: this.#row.record,
      // Bytes that came after the end were not kept: nothing is shown that they could contradict.
      stream: isLate ? undefined : (name) => this.#logs.of(record).wholeStream(name),
      streamEnd: isLate ? undefined : (name) => this.#logs.of(record).endOf(name),
    });
    // A sandbox that was attached meanwhile goes on from the head of the chain as it was then.
    const isTooLate = () => !this.#row.isLive || frame.epoch !== this.#row.record.epoch;
    if (isTooLate()) return;
    if (!checked.ok) return this.#refuse(frame, checked.detail);
    const envelope = await counterSign(frame.receipt, checked.payload, this.#configuration.receipt);
    if (isTooLate()) return;
    this.#acknowledgement.writes(frame.seq);
    this.#executions.end(record, {
      status: checked.receipt.status,
      outcome: frame.outcome,
      receipt: {
        envelope,
        seq: checked.receipt.seq,
        sha256: checked.sha256,
        usage: checked.receipt.usage,
        truncated: checked.receipt.stdout.truncated || checked.receipt.stderr.truncated,
      },
    });
    if (isLate) this.#port.endedLate(record);
  }

  /** Only where a stream is longer than a result holds: then its end waits until it is known what of it is stored. */
  async #settleOutputs(record: ExecutionRecord): Promise<void> {
    const log = this.#logs.of(record);
    const ends = { stdout: log.endOf('stdout'), stderr: log.endOf('stderr') };
    if (ends.stdout <= INLINE_BYTES && ends.stderr <= INLINE_BYTES) return;
    this.#acknowledgement.flush();
    await this.#outputs.settle(record, ends);
  }

  #refused(frame: Frame<'refused'>): void {
    const record = this.#executions.open.find(({ executionId }) => executionId === frame.execution_id);
    // A grant that was made again after a lost link may find the first one at work: that is no refusal of the execution.
    const isOfLastGrant = frame.grant_jti === null || frame.grant_jti === record?.grants.at(-1)?.jti;
    if (record?.status !== 'granted' || !isOfLastGrant || frame.code === 'grant_replayed') {
      if (record === undefined && this.#port.inputRefused(frame.grant_jti)) return;
      if (record === undefined && this.#port.commandRefused(frame)) return;
      this.#drop(frame, `${frame.code}: ${frame.detail}`);
      return;
    }
    if (frame.code === 'sandbox_failed') this.#port.sandboxFailed(record);
    else this.#executions.end(record, { status: 'refused', reason: frame.code });
  }

  #refuse(frame: Frame<'finished'>, detail: string): void {
    this.#drop(frame, detail);
    this.#port.receiptRefused();
  }

  /** Seen and not used: of a correct host there is none, so each is worth a line. */
  #drop(frame: SequencedUp, detail: string): void {
    this.#port.useless();
    logWarning('frame_dropped', {
      session_id: this.#row.record.facts.sessionId,
      type: frame.type,
      seq: frame.seq,
      execution_id: 'execution_id' in frame ? frame.execution_id : null,
      detail,
    });
  }
}
