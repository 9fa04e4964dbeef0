/** The calls of a program on this host: up as frames, in order and under the window; their answers down, each once. */
import { CallAnswerSchema, MAX_CALLS_OUTSTANDING_BYTES } from '../../shared/code-mode.ts';
import { type Failure, failure } from '../../shared/errors.ts';
import { MAX_FRAME_PAYLOAD_BYTES } from '../../shared/limits.ts';
import type { ProgramCall, ProgramListener, RunningExecution } from '../sandbox/port.ts';
import type { Uplink } from './uplink.ts';

export class ProgramCalls implements ProgramListener {
  readonly #executionId: string;
  readonly #linked = Promise.withResolvers<void>();
  #uplink: Uplink | undefined;
  #running: Pick<RunningExecution, 'answer'> | undefined;
  /** Nothing is told before there is somebody to tell. */
  #sends: Promise<void> = this.#linked.promise;
  #unsentBytes = 0;
  #isOver = false;
  /** What the edge was told last of the clock. */
  #toldWaiting = false;
  #leftMs = 0;

  constructor(executionId: string) {
    this.#executionId = executionId;
  }

  begin(running: Pick<RunningExecution, 'answer'>, uplink: Uplink): void {
    this.#running = running;
    this.#uplink = uplink;
    this.#linked.resolve();
  }

  /** Settles when all that the guest has said so far is with the link. */
  settled(): Promise<void> {
    return this.#sends;
  }

  onCall(call: ProgramCall): void {
    const bytes = Buffer.from(call.arguments, 'utf8');
    if (this.#unsentBytes + bytes.length > MAX_CALLS_OUTSTANDING_BYTES) {
      const error = { code: 'overloaded', message: 'more arguments wait to leave the host than it keeps' };
      // The sandbox is in the middle of telling.
      setImmediate(() => void this.#running?.answer({ call: call.call, error }));
      return;
    }
    this.#unsentBytes += bytes.length;
    this.#inOrder(async () => {
      await this.#send(call, bytes);
      this.#unsentBytes -= bytes.length;
    });
  }

  onWaiting(leftMs: number): void {
    this.#inOrder(async () => this.#tell('waiting', leftMs));
  }

  onContinued(leftMs: number): void {
    this.#leftMs = leftMs;
    this.#inOrder(async () => this.#tell('continued', leftMs));
  }

  /** The program has ended: nothing of it is told any more but that it does not wait. */
  end(): void {
    this.#isOver = true;
    if (this.#toldWaiting) this.#tell('continued', this.#leftMs);
  }

  /** An answer of the edge, as it came. Given again, it is only confirmed again. */
  async answer(payload: Uint8Array): Promise<Failure | undefined> {
    const parsed = CallAnswerSchema.safeParse(parseJson(payload));
    if (!parsed.success) return failure('invalid_request', 'the answer is none of a call');
    await this.#running?.answer(parsed.data);
    if (!this.#isOver) {
      const { call } = parsed.data;
      this.#uplink?.send({ type: 'tool_result_taken', execution_id: this.#executionId, call });
    }
    return undefined;
  }

  #inOrder(work: () => Promise<void>): void {
    this.#sends = this.#sends.then(() => (this.#isOver ? undefined : work()));
  }

  async #send({ call, name }: ProgramCall, bytes: Uint8Array): Promise<void> {
    let offset = 0;
    do {
      const piece = bytes.subarray(offset, offset + MAX_FRAME_PAYLOAD_BYTES);
      await this.#uplink?.waitForRoom(piece.length, this.#executionId);
      if (this.#isOver) return;
      const last = offset + piece.length === bytes.length;
      const about = { execution_id: this.#executionId, call, name, offset, last };
      this.#uplink?.send({ type: 'tool_call', ...about }, piece);
      offset += piece.length;
    } while (offset < bytes.length);
  }

  #tell(type: 'waiting' | 'continued', leftMs: number): void {
    this.#toldWaiting = type === 'waiting';
    this.#uplink?.send({ type, execution_id: this.#executionId, left_ms: leftMs });
  }
}

function parseJson(payload: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(payload));
  } catch {
    return undefined;
  }
}
