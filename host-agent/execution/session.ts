/** The commands that the edge grants for one session on this host: checked, carried out once, or refused. */
import { hash } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import { type Failure, failure, type Outcome } from '../../shared/errors.ts';
import type { GrantAct, GrantClaims } from '../../shared/grant.ts';
import { HOST_ANSWER_GRACE_MS } from '../../shared/limits.ts';
import { type SuspendPayload, SuspendPayloadSchema } from '../../shared/snapshot.ts';
import type { ExecutionState } from '../journal/state.ts';
import type { Sandbox } from '../sandbox/port.ts';
import type { Snapshots } from '../snapshots/snapshots.ts';
import type { Transfers } from '../transfers/transfers.ts';
import { checkBinding, checkSequence, type SessionBinding } from './grant-check.ts';
import { GrantMemory } from './grant-memory.ts';
import { ExecutionLanes } from './lanes.ts';
import type { Lateness } from './lateness.ts';
import { tellFinished } from './run.ts';
import type { RunnerDependencies } from './runner.ts';
import { suspend } from './suspension.ts';
import { type NamedGrant, namedGrant } from './unverified-claims.ts';
import type { Uplink } from './uplink.ts';
import type { ExecuteCommand } from './waiting-commands.ts';

export interface SessionDependencies extends RunnerDependencies {
  snapshots: Snapshots;
  lateness: Lateness;
  verifyGrant: (token: string) => Promise<Outcome<GrantClaims>>;
}

export interface SessionParts {
  transfers?: Transfers | null;
  /** The session goes on elsewhere, and the edge knows. */
  onMoved?: () => void;
  /** Executions whose ends are about to be told, in the order of their receipts. */
  untold?: ReadonlySet<string>;
}

function suspendPayload(payload: Uint8Array): SuspendPayload | undefined {
  try {
    const json: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload));
    return SuspendPayloadSchema.safeParse(json).data;
  } catch {
    return undefined;
  }
}

function isOfTransfer(act: GrantAct): boolean {
  return act === 'file' || act === 'terminal' || act === 'process';
}

/** A command as it came on the link. */
export interface SessionCommand {
  grant: string;
  payload: Uint8Array;
  requestId?: string | undefined;
}

export class HostedSession {
  readonly #binding: SessionBinding;
  readonly #sandbox: Sandbox | null;
  readonly #uplink: Uplink;
  readonly #dependencies: SessionDependencies;
  readonly #runner: ExecutionLanes;
  readonly #memory = new GrantMemory();
  readonly #transfers: Transfers | null;
  readonly #untold: ReadonlySet<string>;
  readonly #onMoved: () => void;
  #highestSeq: number;
  #isSuspending = false;
  /** The last that was asked for: of one whose answer is on its way the edge may ask again, on a new link. */
  #snapshotId: string | undefined;

  /** Without a sandbox (after a restart of the host) the session only answers what it knows. */
  constructor(
    binding: SessionBinding,
    sandbox: Sandbox | null,
    uplink: Uplink,
    dependencies: SessionDependencies,
    { transfers = null, onMoved = () => undefined, untold = new Set() }: SessionParts = {},
  ) {
    this.#transfers = transfers;
    this.#onMoved = onMoved;
    this.#untold = untold;
    this.#binding = binding;
    this.#sandbox = sandbox;
    this.#uplink = uplink;
    this.#dependencies = dependencies;
    this.#runner = new ExecutionLanes({
      binding,
      sandbox,
      uplink,
      dependencies,
      onRefused: (claims, refused) => this.#refuseForGood(claims, refused),
    });
    this.#highestSeq = dependencies.journal.session(binding.sessionId)?.seq ?? 0;
  }

  /** Nothing is started from now on. Settles when what runs has ended and was told. */
  end(): Promise<void> {
    return this.#runner.end();
  }

  /** One command; the caller gives one after the other. */
  async handleCommand({ grant: token, payload, requestId }: SessionCommand): Promise<void> {
    const verified = await this.#dependencies.verifyGrant(token);
    if (!verified.ok) return this.#refuseUnverified(token, verified);
    const claims = verified.value;
    const remembered = this.#memory.get(claims.jti);
    if (remembered === 'done') return;
    if (remembered !== undefined) return this.#refuse(claims, remembered);
    const refused = await this.#carryOut({ claims, token, payload, requestId });
    if (refused !== undefined) this.#refuseForGood(claims, refused);
  }

  async #carryOut(command: ExecuteCommand): Promise<Failure | undefined> {
    const { claims, token, payload } = command;
    const bound = checkBinding(claims, this.#binding, hash('sha256', payload));
    if (!bound.ok) return bound;
    if (isOfTransfer(claims.act)) return this.#transfer(claims, payload);
    const repeated = this.#answerRepeated(claims, token);
    if (repeated !== 'new') return repeated;
    const sequence = checkSequence(claims, this.#highestSeq);
    if (!sequence.ok) return sequence;
    if (claims.act === 'attach') {
      return failure('grant_invalid', 'attach is not granted on the link of a session');
    }
    if (claims.act === 'execute') {
      const refused = this.#late(claims) ?? (await this.#runner.execute(command));
      if (refused === undefined) this.#highestSeq = Math.max(this.#highestSeq, claims.seq);
      return refused;
    }
    this.#highestSeq = Math.max(this.#highestSeq, claims.seq);
    this.#memory.remember(claims.jti, 'done');
    if (claims.act === 'stdin') return this.#writeStdin(claims, payload);
    if (claims.act === 'tool_result') return this.#answerCall(claims, payload);
    if (claims.act === 'interrupt') return this.#interrupt(claims);
    if (claims.act === 'pause') return this.#pause();
    if (claims.act === 'resume') return this.#resume();
    if (claims.act === 'suspend') return this.#suspend(payload);
    this.#destroy();
    return undefined;
  }

  /** Goes on with an execution that ran at a checkpoint; its start here is in the journal. */
  adopt(...call: Parameters<ExecutionLanes['adopt']>): void {
    this.#runner.adopt(...call);
  }

  /** Not waited for: only an end of the session comes meanwhile, and that must pass. */
  #suspend(payload: Uint8Array): Failure | undefined {
    if (this.#sandbox === null) return failure('sandbox_failed', 'the sandbox is gone');
    const parsed = suspendPayload(payload);
    if (parsed === undefined) return failure('invalid_request', 'not the payload of a suspend grant');
    if (parsed.snapshot_id === this.#snapshotId) return undefined;
    if (this.#isSuspending) return failure('suspend_failed', 'a checkpoint is being made');
    this.#isSuspending = true;
    this.#snapshotId = parsed.snapshot_id;
    const { snapshots, host, log } = this.#dependencies;
    const parts = {
      binding: this.#binding,
      sandbox: this.#sandbox,
      runner: this.#runner,
      uplink: this.#uplink,
      snapshots,
      hostId: host.hostId,
      generation: this.#binding.generation ?? 0,
      log,
      onMoved: () => this.#onMoved(),
    };
    void suspend(parts, parsed).then(() => {
      this.#isSuspending = false;
    });
    return undefined;
  }

  /** Told behind all that the guest wrote before it stood still. */
  async #pause(): Promise<Failure | undefined> {
    if (this.#sandbox === null) return failure('sandbox_failed', 'the sandbox is gone');
    const paused = await this.#sandbox.pause();
    if (!paused.ok) return paused;
    for (const { recorder } of this.#runner.live(null)) recorder.flush();
    await turn();
    this.#uplink.send({ type: 'paused' });
    return undefined;
  }

  #resume(): Failure | undefined {
    if (this.#sandbox === null) return failure('sandbox_failed', 'the sandbox is gone');
    this.#sandbox.resume();
    this.#uplink.send({ type: 'resumed' });
    return undefined;
  }

  /** Beside executions, so without a place in their order: its grant is used once, and its number says nothing. */
  #transfer(claims: GrantClaims, payload: Uint8Array): Failure | undefined {
    if (this.#transfers === null) return failure('sandbox_failed', 'the sandbox is gone');
    return this.#transfers.begin(claims, payload);
  }

  /** What the edge no longer waits for is not begun: this host slept, or the link did. */
  #late(claims: GrantClaims): Failure | undefined {
    const lateMs = this.#dependencies.lateness.observe(claims.iat);
    if (lateMs <= claims.limits.timeout_ms + HOST_ANSWER_GRACE_MS) return undefined;
    return failure('grant_expired', 'the deadline of the execution has passed');
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
    const { execution_id: executionId } = started;
    if (finished === null || this.#untold.has(executionId) || this.#runner.isUnderWay(executionId)) return;
    if (this.#uplink.isOverfull) return;
    tellFinished({ ...this.#dependencies, uplink: this.#uplink }, started, finished);
  }

  #knownExecution(grant: { exec: string | null; jti: string }): ExecutionState | undefined {
    const executions = this.#dependencies.journal.session(this.#binding.sessionId)?.executions;
    if (executions === undefined) return undefined;
    const byId = grant.exec === null ? undefined : executions.get(grant.exec);
    return byId ?? [...executions.values()].find(({ started }) => started.jti === grant.jti);
  }

  /** Not waited for: an interrupt must pass a program that does not read. */
  #writeStdin(claims: GrantClaims, payload: Uint8Array): Failure | undefined {
    const [live] = this.#runner.live(claims.exec);
    if (live === undefined) return failure('execution_not_running', 'the execution is not running');
    void live.stdin.write(payload).then((written) => {
      if (!written.ok) this.#refuse(claims, written);
    });
    return undefined;
  }

  /** Not waited for either: a program that does not read holds back only its own answers. */
  #answerCall(claims: GrantClaims, payload: Uint8Array): Failure | undefined {
    const [live] = this.#runner.live(claims.exec);
    const calls = live?.calls;
    if (calls === undefined || calls === null) {
      return failure('execution_not_running', 'the program is not running');
    }
    void calls.answer(payload).then((refused) => {
      if (refused !== undefined) this.#refuse(claims, refused);
    });
    return undefined;
  }

  #interrupt(claims: GrantClaims): Failure | undefined {
    const live = this.#runner.live(claims.exec);
    if (live.length === 0) return failure('execution_not_running', 'the execution is not running');
    for (const { running } of live) running.interrupt();
    return undefined;
  }

  /** What follows from it is told when the sandbox says that it is gone. */
  #destroy(): void {
    void this.#dependencies.snapshots.forgetSession(this.#binding.sessionId);
    this.#sandbox?.destroy().catch((error: unknown) => {
      const detail = error instanceof Error ? error.message : 'unknown';
      this.#dependencies.log.error({ event: 'sandbox_destroy_failed', detail });
    });
  }

  #refuseUnverified(token: string, refused: Failure): void {
    const named = namedGrant(token);
    if (refused.code === 'grant_expired' && named.act === 'execute' && named.jti !== null) {
      // Its signature was good: an expired repeat of something that started is answered like any repeat.
      const known = this.#knownExecution({ exec: named.exec, jti: named.jti });
      if (known !== undefined) {
        this.#tellAgain(known);
        return;
      }
    }
    this.#refuse(named, refused);
  }

  /** The same grant gets the same answer again, but the jti of something that did start goes on answering for that. */
  #refuseForGood(claims: GrantClaims, refused: Failure): void {
    if (refused.code !== 'grant_replayed') this.#memory.remember(claims.jti, refused);
    this.#refuse(claims, refused);
  }

  /** Names the execution only where it can be said that it never started: of an execute grant, and not known here. */
  #refuse(grant: NamedGrant, refused: Failure): void {
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
