/** A session on this host: its sandbox, what runs in it, and the commands that the edge grants for it. */
import { hash } from 'node:crypto';
import * as z from 'zod';
import type { Signer } from '../../shared/dsse.ts';
import { type Failure, failure, type Outcome } from '../../shared/errors.ts';
import type { GrantClaims } from '../../shared/grant.ts';
import { MAX_STDIN_BYTES } from '../../shared/limits.ts';
import { FIRST_PREVIOUS_SHA256 } from '../../shared/receipt.ts';
import type { StartedEntry } from '../journal/entries.ts';
import type { Journal } from '../journal/journal.ts';
import type { ExecutionState } from '../journal/state.ts';
import type { Log } from '../logging/log.ts';
import type { RunningExecution, Sandbox } from '../sandbox/port.ts';
import {
  checkBinding,
  checkExecute,
  checkSequence,
  type ExecuteRequest,
  type SessionBinding,
} from './grant-check.ts';
import type { HostFacts } from './receipt.ts';
import { runExecution, tellFinished } from './run.ts';
import { unverifiedClaims } from './unverified-claims.ts';
import type { Uplink } from './uplink.ts';

/** Grants remembered beside those in the journal; older ones are refused by their number or their expiry. */
const MAX_REMEMBERED_GRANTS = 4096;
const MAX_WAITING_STDIN_BYTES = 2 * MAX_STDIN_BYTES;

export interface SessionDependencies {
  journal: Journal;
  host: HostFacts;
  signer: Signer;
  log: Log;
  verifyGrant: (token: string) => Promise<Outcome<GrantClaims>>;
}

interface CurrentExecution {
  executionId: string;
  running: RunningExecution | null;
  done: Promise<void>;
  /** Writes to stdin, one after the other; a program that does not read holds back only these. */
  stdin: Promise<void>;
  stdinBytes: number;
}

type RunningCurrent = CurrentExecution & { running: RunningExecution };

function hasStarted(current: CurrentExecution): current is RunningCurrent {
  return current.running !== null;
}

export class HostedSession {
  readonly #binding: SessionBinding;
  readonly #sandbox: Sandbox | null;
  readonly #uplink: Uplink;
  readonly #dependencies: SessionDependencies;
  #current: CurrentExecution | null = null;
  #highestSeq: number;
  #isOver = false;
  /** What became of grants that are not in the journal: refused, or carried out at once. */
  readonly #remembered = new Map<string, Failure | 'done'>();

  /** Without a sandbox (after a restart of the host) the session only answers what it knows. */
  constructor(
    binding: SessionBinding,
    sandbox: Sandbox | null,
    uplink: Uplink,
    dependencies: SessionDependencies,
  ) {
    this.#binding = binding;
    this.#sandbox = sandbox;
    this.#uplink = uplink;
    this.#dependencies = dependencies;
    this.#highestSeq = dependencies.journal.session(binding.sessionId)?.seq ?? 0;
  }

  /** Nothing is started from now on. Settles when what runs has ended and was told. */
  async end(): Promise<void> {
    this.#isOver = true;
    await this.#current?.done;
  }

  /** One command; the caller gives one after the other. */
  async handleCommand(token: string, payload: Uint8Array): Promise<void> {
    const verified = await this.#dependencies.verifyGrant(token);
    if (!verified.ok) return this.#refuseUnverified(token, verified);
    const claims = verified.value;
    const remembered = this.#remembered.get(claims.jti);
    if (remembered === 'done') return;
    if (remembered !== undefined) return this.#refuse(claims, remembered);
    const refused = await this.#carryOut(claims, token, payload);
    if (refused !== undefined) {
      this.#remember(claims.jti, refused);
      this.#refuse(claims, refused);
    }
  }

  async #carryOut(claims: GrantClaims, token: string, payload: Uint8Array): Promise<Failure | undefined> {
    const bound = checkBinding(claims, this.#binding, hash('sha256', payload));
    if (!bound.ok) return bound;
    const repeated = this.#answerRepeated(claims, token);
    if (repeated !== 'new') return repeated;
    const sequence = checkSequence(claims, this.#highestSeq);
    if (!sequence.ok) return sequence;
    switch (claims.act) {
      case 'execute':
        return this.#execute(claims, token, payload);
      case 'stdin':
        this.#accept(claims);
        return this.#writeStdin(claims, payload);
      case 'interrupt':
        this.#accept(claims);
        return this.#interrupt(claims);
      case 'destroy':
        this.#accept(claims);
        this.#destroy();
        return undefined;
      case 'attach':
        return failure('grant_invalid', 'attach is not granted on the link of a session');
    }
  }

  /** Nothing starts twice: a known execution is answered with what is known of it. */
  #answerRepeated(claims: GrantClaims, token: string): Failure | undefined | 'new' {
    const session = this.#dependencies.journal.session(this.#binding.sessionId);
    const replayed = failure('grant_replayed', 'the jti was used for something else');
    if (session?.attachJti === claims.jti) return replayed;
    const byJti = this.#knownExecution({ exec: null, jti: claims.jti });
    if (byJti !== undefined && byJti.started.grant_sha256 !== hash('sha256', token)) return replayed;
    const known = claims.act === 'execute' ? this.#knownExecution(claims) : undefined;
    if (known === undefined) return 'new';
    this.#tellAgain(known);
    return undefined;
  }

  /** What still runs or is being told is under way on the link already. */
  #tellAgain({ started, finished }: ExecutionState): void {
    if (finished === null || this.#current?.executionId === started.execution_id) return;
    if (this.#uplink.isOverfull) return;
    tellFinished({ ...this.#dependencies, uplink: this.#uplink }, started, finished);
  }

  #knownExecution(claims: Pick<GrantClaims, 'exec' | 'jti'>): ExecutionState | undefined {
    const executions = this.#dependencies.journal.session(this.#binding.sessionId)?.executions;
    if (executions === undefined) return undefined;
    const byId = claims.exec === null ? undefined : executions.get(claims.exec);
    return byId ?? [...executions.values()].find(({ started }) => started.jti === claims.jti);
  }

  async #execute(claims: GrantClaims, token: string, payload: Uint8Array): Promise<Failure | undefined> {
    const { journal } = this.#dependencies;
    const sandbox = this.#sandbox;
    if (sandbox === null || this.#isOver) return failure('sandbox_failed', 'the sandbox is gone');
    if (this.#current !== null) return failure('queue_full', 'an execution runs in this session');
    const checked = checkExecute(claims, this.#binding, payload);
    if (!checked.ok) return checked;
    const started = startedEntry(claims, token, checked.value);
    const journaled = await journal.started(started);
    if (!journaled.ok) return journaled;
    this.#highestSeq = Math.max(this.#highestSeq, claims.seq);
    const current: CurrentExecution = {
      executionId: started.execution_id,
      running: null,
      done: Promise.resolve(),
      stdin: Promise.resolve(),
      stdinBytes: 0,
    };
    this.#current = current;
    current.done = this.#run(current, started, { sandbox, request: checked.value }).catch((error: unknown) => {
      this.#current = null;
      const detail = error instanceof Error ? error.message : 'unknown';
      this.#dependencies.log.error({ event: 'execution_fault', session_id: started.session_id, detail });
    });
    return undefined;
  }

  async #run(
    current: CurrentExecution,
    started: StartedEntry,
    call: { sandbox: Sandbox; request: ExecuteRequest },
  ): Promise<void> {
    const { journal, host, signer, log } = this.#dependencies;
    const chain = journal.session(started.session_id)?.chain ?? { seq: 0, sha256: FIRST_PREVIOUS_SHA256 };
    const context = { journal, host, signer, uplink: this.#uplink, chain };
    const outcome = await runExecution(context, started, {
      ...call,
      onRunning: (running) => {
        current.running = running;
      },
      onTelling: () => {
        this.#current = null;
      },
    });
    log.info({
      event: 'execution_finished',
      session_id: started.session_id,
      execution_id: started.execution_id,
      tool: started.tool,
      status: outcome.status,
      duration_ms: outcome.duration_ms,
      bytes: outcome.stdout_bytes + outcome.stderr_bytes,
    });
  }

  #writeStdin(claims: GrantClaims, payload: Uint8Array): Failure | undefined {
    const current = this.#runningExecution(claims);
    if (current === undefined) return failure('execution_not_running', 'the execution is not running');
    if (current.stdinBytes + payload.length > MAX_WAITING_STDIN_BYTES) {
      return failure('overloaded', 'the program does not read its stdin');
    }
    current.stdinBytes += payload.length;
    current.stdin = current.stdin.then(async () => {
      const written = await current.running.writeStdin(payload, payload.length === 0);
      current.stdinBytes -= payload.length;
      if (!written.ok) this.#refuse(claims, written);
    });
    return undefined;
  }

  #interrupt(claims: GrantClaims): Failure | undefined {
    const current = this.#runningExecution(claims);
    if (current === undefined) return failure('execution_not_running', 'the execution is not running');
    current.running.interrupt();
    return undefined;
  }

  #runningExecution(claims: GrantClaims): RunningCurrent | undefined {
    const current = this.#current;
    if (current === null || (claims.exec !== null && claims.exec !== current.executionId)) return undefined;
    return hasStarted(current) ? current : undefined;
  }

  /** What follows from it is told when the sandbox says that it is gone. */
  #destroy(): void {
    this.#sandbox?.destroy().catch((error: unknown) => {
      const detail = error instanceof Error ? error.message : 'unknown';
      this.#dependencies.log.error({ event: 'sandbox_destroy_failed', detail });
    });
  }

  #accept(claims: GrantClaims): void {
    this.#highestSeq = Math.max(this.#highestSeq, claims.seq);
    this.#remember(claims.jti, 'done');
  }

  #remember(jti: string, what: Failure | 'done'): void {
    this.#remembered.set(jti, what);
    const [oldest] = this.#remembered.keys();
    if (this.#remembered.size > MAX_REMEMBERED_GRANTS && oldest !== undefined) {
      this.#remembered.delete(oldest);
    }
  }

  #refuseUnverified(token: string, refused: Failure): void {
    const named = NamedSchema.safeParse(unverifiedClaims(token)).data ?? { act: null, exec: null, jti: null };
    if (refused.code === 'grant_expired' && named.act === 'execute' && named.jti !== null) {
      // Its signature was good: an expired repeat of something that started is answered like any repeat.
      const known = this.#knownExecution({ exec: named.exec, jti: named.jti });
      if (known !== undefined) return this.#tellAgain(known);
    }
    this.#refuse(named, refused);
  }

  /** Names the execution only where it can be said that it never started: of an execute grant, and not known here. */
  #refuse(grant: { act: string | null; exec: string | null; jti: string | null }, refused: Failure): void {
    this.#dependencies.log.warn({
      event: 'grant_refused',
      session_id: this.#binding.sessionId,
      act: grant.act ?? 'none',
      code: refused.code,
      detail: refused.detail,
    });
    if (this.#uplink.isOverfull) return;
    const executions = this.#dependencies.journal.session(this.#binding.sessionId)?.executions;
    const neverStarted =
      grant.act === 'execute' && grant.exec !== null && executions?.has(grant.exec) !== true;
    this.#uplink.send({
      type: 'refused',
      execution_id: neverStarted ? grant.exec : null,
      grant_jti: grant.jti,
      code: refused.code,
      detail: refused.detail.slice(0, 1024),
    });
  }
}

function startedEntry(claims: GrantClaims, token: string, request: ExecuteRequest): StartedEntry {
  return {
    kind: 'started',
    session_id: claims.sid,
    epoch: claims.epoch,
    execution_id: request.executionId,
    jti: claims.jti,
    grant_sha256: hash('sha256', token),
    tenant: claims.tenant,
    seq: claims.seq,
    tool: request.tool,
    tool_version: request.toolVersion,
    args_sha256: claims.args_sha256,
    image: claims.image,
    limits: claims.limits,
    granted_at: new Date(claims.iat * 1000).toISOString(),
    started_at: new Date().toISOString(),
  };
}

/** What a grant that does not verify says of itself: enough to name it in the answer, and for nothing else. */
const NamedSchema = z.object({
  act: z.string().max(16).nullable().catch(null),
  exec: z
    .string()
    .regex(/^exe_[A-Za-z0-9_-]{22}$/)
    .nullable()
    .catch(null),
  jti: z.string().max(64).nullable().catch(null),
});
