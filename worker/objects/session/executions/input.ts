/**
 * Input of what runs. It is bounded by what the program has taken, and what the program reads is always a beginning of
 * what was sent: once bytes may have been lost on the way, none are sent after them.
 */
import { type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import { MAX_STDIN_BYTES, STDIN_WINDOW_BYTES } from '../../../../shared/limits.ts';
import { type ExecutionRecord, type InputState, isToBeSent } from '../rows/records.ts';
import type { Executions } from './executions.ts';

/** Grants of input that the host may still refuse. */
const MAX_REMEMBERED_GRANTS = 64;

const UNTOUCHED: InputState = { sentBytes: 0, takenBytes: 0, doubtfulBytes: 0, closed: false };

/** Sends bytes to the host, none for the end of input; gives the grant, or undefined while the link is down. */
export type SendInput = (record: ExecutionRecord, bytes: Uint8Array) => Promise<string | undefined>;

export class ExecutionInput {
  readonly #executions: Executions;
  readonly #send: SendInput;
  readonly #grants = new Map<string, ExecutionRecord>();

  constructor(executions: Executions, send: SendInput) {
    this.#executions = executions;
    this.#send = send;
  }

  /** One write after the other: the caller sees to that. */
  async write(record: ExecutionRecord, bytes: Uint8Array, eof: boolean): Promise<Outcome<null>> {
    if (bytes.length > MAX_STDIN_BYTES) {
      return failure('payload_too_large', `at most ${MAX_STDIN_BYTES} bytes at once`);
    }
    const fault = inputFault(record, bytes.length);
    if (fault !== undefined) return fault;
    if (bytes.length > 0 && !(await this.#sendCounted(record, bytes))) return linkDown();
    if (eof && !(await this.#sendCounted(record, new Uint8Array(0)))) return linkDown();
    return success(null);
  }

  /** Counted before it is sent, and no longer when it was not. */
  async #sendCounted(record: ExecutionRecord, bytes: Uint8Array): Promise<boolean> {
    const before = record.input ?? UNTOUCHED;
    this.#set(record, { sentBytes: before.sentBytes + bytes.length, closed: bytes.length === 0 });
    const grant = await this.#send(record, bytes);
    if (grant === undefined) {
      this.#set(record, { sentBytes: before.sentBytes, closed: before.closed });
      return false;
    }
    this.#grants.set(grant, record);
    const [oldest] = this.#grants.keys();
    if (this.#grants.size > MAX_REMEMBERED_GRANTS && oldest !== undefined) this.#grants.delete(oldest);
    return true;
  }

  /** The host says how much the program has taken, in all. */
  taken(executionId: string, bytes: number): void {
    const record = this.#executions.open.find((open) => open.executionId === executionId);
    if (record?.input === undefined || record.input === null) return;
    const { sentBytes, takenBytes } = record.input;
    this.#set(record, { takenBytes: Math.max(takenBytes, Math.min(bytes, sentBytes)) });
  }

  /** The host took no input by this grant, and takes none of that execution any more. */
  refused(grant: string | null): boolean {
    const record = grant === null ? undefined : this.#grants.get(grant);
    if (record === undefined) return false;
    if (!isTerminal(record.status)) this.#set(record, { closed: true });
    return true;
  }

  /** On a link that is new, what was sent on the one before may never have arrived. */
  linkUp(): void {
    for (const record of this.#executions.open) {
      if (record.input === null || record.input.sentBytes <= record.input.takenBytes) continue;
      this.#set(record, { doubtfulBytes: record.input.sentBytes });
    }
  }

  #set(record: ExecutionRecord, change: Partial<InputState>): void {
    this.#executions.patch(record, { input: { ...(record.input ?? UNTOUCHED), ...change } });
  }
}

function inputFault(record: ExecutionRecord, bytes: number): Failure | undefined {
  if (isTerminal(record.status) || isToBeSent(record)) {
    return failure('execution_not_running', 'the execution is not running');
  }
  const { sentBytes, takenBytes, doubtfulBytes, closed } = record.input ?? UNTOUCHED;
  if (closed || !record.stdin) {
    return failure('execution_not_running', 'the execution takes no input, or no more of it');
  }
  if (takenBytes < doubtfulBytes) {
    return failure('host_unresponsive', 'input that was sent before a lost link may not have arrived');
  }
  if (bytes > 0 && sentBytes + bytes - takenBytes > STDIN_WINDOW_BYTES) {
    const waiting = `${sentBytes - takenBytes} bytes of input wait for the program to read them`;
    return failure('queue_full', waiting, { retry_after_s: 1 });
  }
  return undefined;
}

function linkDown(): Failure {
  return failure('host_unresponsive', 'the link to the host is down');
}
