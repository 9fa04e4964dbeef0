/**
 * The host's journal: what was started here and how it ended. A start is on disk before anything starts, an end before
 * it is told, so that after a crash nothing runs twice and nothing that ended is lost.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import { AppendLog, type OnWrite } from './append-log.ts';
import { type JournalEntry, JournalEntrySchema, type StartedEntry } from './entries.ts';
import { encodeRecord } from './record-format.ts';
import {
  type ChainHead,
  type FinishedExecution,
  finishedEntry,
  JournalState,
  type SessionState,
} from './state.ts';

/** The journal is rewritten without what is acknowledged when it outgrows this and has doubled since the last time. */
const COMPACTION_BYTES = 32 * 1024 * 1024;
const DEGRADED_RETRY_MS = 2_000;

export interface JournalOptions {
  nowS?: () => number;
  onDegraded?: (degraded: boolean) => void;
  onWrite?: OnWrite;
  retryMs?: number;
}

export class Journal {
  readonly #log: AppendLog;
  readonly #state: JournalState;
  readonly #nowS: () => number;
  readonly #onDegraded: (degraded: boolean) => void;
  readonly #retryMs: number;
  #degraded = false;
  #retryTimer: NodeJS.Timeout | undefined;
  /** Ends that the disk refused; written again until it takes them. One per running execution at most. */
  #owed: Buffer[] = [];
  /** Execution ids and grant ids of starts that are being written. */
  readonly #starting = new Set<string>();
  #sizeAfterCompaction: number;
  #compacting = false;
  readonly tornBytes: number;

  private constructor(log: AppendLog, state: JournalState, tornBytes: number, options: JournalOptions) {
    this.#log = log;
    this.#state = state;
    this.tornBytes = tornBytes;
    this.#nowS = options.nowS ?? (() => Math.floor(Date.now() / 1000));
    this.#onDegraded = options.onDegraded ?? (() => {});
    this.#retryMs = options.retryMs ?? DEGRADED_RETRY_MS;
    this.#sizeAfterCompaction = log.sizeBytes;
  }

  /** Reads the journal of `directory`, cuts a torn tail off, and rewrites it without what is over. */
  static async open(directory: string, options: JournalOptions = {}): Promise<Journal> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const { log, records, tornBytes } = await AppendLog.open(join(directory, 'journal'), options.onWrite);
    const state = new JournalState();
    for (const { header, payload } of records) {
      const entry = JournalEntrySchema.safeParse(header);
      if (!entry.success) {
        throw new Error(`the journal in ${directory} has an entry that this version does not know`);
      }
      state.apply(entry.data, payload);
    }
    const journal = new Journal(log, state, tornBytes, options);
    if (records.length > 0) await journal.#compact();
    return journal;
  }

  /** Whether the disk refused the last write: no work is taken until it takes writes again. */
  get degraded(): boolean {
    return this.#degraded;
  }

  get keySet(): { version: number; token: string } | null {
    return this.#state.keySet;
  }

  session(sessionId: string): SessionState | undefined {
    return this.#state.sessions.get(sessionId);
  }

  sessions(): SessionState[] {
    return [...this.#state.sessions.values()];
  }

  async keySetAccepted(version: number, token: string): Promise<Outcome<null>> {
    return this.#record({ kind: 'key_set', version, token });
  }

  async attached(fields: {
    sessionId: string;
    epoch: number;
    tenant: string;
    sandboxId: string;
    image: string;
    jti: string;
    seq: number;
    chain: ChainHead;
  }): Promise<Outcome<null>> {
    const { sessionId, sandboxId, chain, ...same } = fields;
    const entry = { session_id: sessionId, sandbox_id: sandboxId, at_s: this.#nowS(), ...same };
    return this.#record({
      kind: 'attached',
      ...entry,
      receipt_seq: chain.seq,
      receipt_sha256: chain.sha256,
    });
  }

  /**
   * One start of an execution and one of a grant is all that is ever written: a second one is refused. One that comes from
   * another host may have been here before, and then this host has lost it. The grant of the sandbox itself may start
   * several: the programs that go on in a fork.
   */
  async started(entry: StartedEntry): Promise<Outcome<null>> {
    const session = this.#state.sessions.get(entry.session_id);
    const executions = session?.executions;
    if (entry.former_hosts !== undefined) return this.#record(entry);
    const isKnown =
      executions?.has(entry.execution_id) === true ||
      (session?.attachJti !== entry.jti &&
        [...(executions?.values() ?? [])].some(({ started }) => started.jti === entry.jti));
    if (isKnown || this.#starting.has(entry.execution_id) || this.#starting.has(entry.jti)) {
      return failure('grant_replayed', 'the execution was started before');
    }
    this.#starting.add(entry.execution_id).add(entry.jti);
    const recorded = await this.#record(entry);
    this.#starting.delete(entry.execution_id);
    this.#starting.delete(entry.jti);
    return recorded;
  }

  /** An end always counts here; a disk that refuses it gets it again until it takes it. */
  async finished(started: StartedEntry, finished: FinishedExecution): Promise<Outcome<null>> {
    const { entry, payloads } = finishedEntry(started, finished);
    const bytes = encodeRecord(entry, payloads);
    this.#state.apply(entry, Buffer.concat(payloads));
    if (!this.#degraded && (await this.#append(bytes))) return success(null);
    this.#owed.push(bytes);
    return refused();
  }

  acknowledged(sessionId: string, executionId: string): void {
    const session = this.#state.sessions.get(sessionId);
    if (session?.executions.get(executionId)?.finished == null) return;
    const entry = { session_id: sessionId, epoch: session.epoch, execution_id: executionId };
    this.#applyLazily({ kind: 'acknowledged', ...entry });
  }

  /** Lost without waiting for the disk costs a second report at most. */
  detached(sessionId: string, epoch: number, told: boolean): void {
    this.#applyLazily({ kind: 'detached', session_id: sessionId, epoch, told, at_s: this.#nowS() });
  }

  async close(): Promise<void> {
    clearTimeout(this.#retryTimer);
    await this.#log.close();
  }

  #applyLazily(entry: JournalEntry): void {
    this.#state.apply(entry, new Uint8Array(0));
    this.#log.appendLazily(encodeRecord(entry));
  }

  async #record(entry: JournalEntry): Promise<Outcome<null>> {
    if (this.#degraded || !(await this.#append(encodeRecord(entry)))) return refused();
    this.#state.apply(entry, new Uint8Array(0));
    return success(null);
  }

  async #append(bytes: Buffer): Promise<boolean> {
    const written = await this.#log.append(bytes);
    if (!written) this.#degrade();
    else this.#compactWhenLarge();
    return written;
  }

  #compactWhenLarge(): void {
    const size = this.#log.sizeBytes;
    if (this.#compacting || size < COMPACTION_BYTES || size < 2 * this.#sizeAfterCompaction) return;
    this.#compact().catch(() => this.#degrade());
  }

  async #compact(): Promise<void> {
    this.#compacting = true;
    try {
      const nowS = this.#nowS();
      this.#state.forgetOld(nowS);
      const state = this.#state;
      await this.#log.replace(function* () {
        for (const { entry, payloads } of state.compacted(nowS)) yield encodeRecord(entry, payloads);
      });
      this.#sizeAfterCompaction = this.#log.sizeBytes;
    } finally {
      this.#compacting = false;
    }
  }

  #degrade(): void {
    if (!this.#degraded) {
      this.#degraded = true;
      this.#onDegraded(true);
    }
    this.#retryTimer ??= setTimeout(() => void this.#retry(), this.#retryMs).unref();
  }

  async #retry(): Promise<void> {
    this.#retryTimer = undefined;
    const owed = this.#owed;
    this.#owed = [];
    // Without anything owed, one entry that says nothing new shows whether the disk takes writes.
    const probe = this.keySet === null ? [] : [encodeRecord({ kind: 'key_set', ...this.keySet })];
    for (const [index, bytes] of (owed.length > 0 ? owed : probe).entries()) {
      if (await this.#log.append(bytes)) continue;
      this.#owed.unshift(...owed.slice(index));
      this.#degrade();
      return;
    }
    this.#degraded = false;
    this.#onDegraded(false);
  }
}

function refused(): Failure {
  return failure('host_degraded', 'the journal cannot be written');
}
