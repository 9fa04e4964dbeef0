/** The calls of a tenant that wait until somebody else approves: kept here, and made from here once they did. */
import { DurableObject } from 'cloudflare:workers';
import {
  APPROVAL_LIFETIME_MS,
  APPROVAL_MEMORY_MS,
  type ApprovalRequest,
  type ApprovalStatus,
  type Decision,
  MAX_APPROVAL_ARGUMENTS_BYTES,
  MAX_WAITING_APPROVALS,
  MAX_WAITING_APPROVALS_OF_A_SUBJECT,
} from '../../../shared/approval.ts';
import { sha256Hex } from '../../../shared/digest.ts';
import { utf8 } from '../../../shared/encoding.ts';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { Execution } from '../../../shared/execution.ts';
import { newId } from '../../../shared/ids.ts';
import { isTerminal } from '../../../shared/lifecycle.ts';
import { makeApproved } from '../../approvals/make.ts';
import { configurationOf } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import type { Caller } from '../caller.ts';
import { ChangeWaits } from '../change-waits.ts';
import { logInfo, logWarning, messageOf } from '../log.ts';
import { SAFE, sessionCalls } from '../object-calls.ts';
import { sessionObjectName } from '../session-name.ts';
import { approvalNews, endEventId } from './news.ts';
import type { ApprovalsPort, AskInput, WaitingCall } from './port.ts';
import { type ApprovalRow, ApprovalStore } from './store.ts';
import { requestOf, viewOf } from './view.ts';

const MAX_TOLD_AT_ONCE = 50;
const TELL_AGAIN_MS = 10_000;

export class ApprovalsObject extends DurableObject<Env> implements ApprovalsPort {
  readonly #store: ApprovalStore;
  readonly #waits = new ChangeWaits();
  /** Those that are on their way into their session. */
  readonly #making = new Set<string>();

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new ApprovalStore(ctx.storage);
  }

  async ask(input: AskInput): Promise<Outcome<Execution>> {
    const { call, idempotency, claims, callback = null, executionId: given } = input;
    const asked = given === undefined ? undefined : this.#own(call.caller, { ...call, executionId: given });
    if (asked !== undefined) {
      this.#store.expire(Date.now());
      return this.#view(asked.executionId);
    }
    if (utf8(JSON.stringify(call.arguments)).length > MAX_APPROVAL_ARGUMENTS_BYTES) {
      const detail = `arguments that somebody is to approve have at most ${MAX_APPROVAL_ARGUMENTS_BYTES} bytes as JSON`;
      return failure('payload_too_large', detail);
    }
    const fingerprint = await fingerprintOf(call);
    const nowMs = Date.now();
    this.#store.expire(nowMs);
    const known = idempotency === null ? undefined : this.#store.byKey(idempotency.key);
    if (known !== undefined) {
      return known.idempotencyFingerprint === idempotency?.fingerprint
        ? success(viewOf(known, nowMs))
        : failure('idempotency_conflict', 'the key was used for another request');
    }
    const same = claims ? this.#store.unclaimed(fingerprint) : undefined;
    if (same !== undefined) return success(viewOf(same, nowMs));
    if (this.#store.waitingCount() >= MAX_WAITING_APPROVALS)
      return failure('quota_exceeded', `${MAX_WAITING_APPROVALS} calls of the tenant wait for an approval`);
    const { subject } = call.caller;
    if (this.#store.waitingCountOf(subject) >= MAX_WAITING_APPROVALS_OF_A_SUBJECT) {
      const detail = `${MAX_WAITING_APPROVALS_OF_A_SUBJECT} calls of yours wait for an approval`;
      return failure('quota_exceeded', detail);
    }
    const executionId = given ?? newId('exe');
    this.#store.insert({
      executionId,
      status: 'waiting',
      call,
      fingerprint,
      idempotencyKey: idempotency?.key ?? null,
      idempotencyFingerprint: idempotency?.fingerprint ?? null,
      requestedAtMs: nowMs,
      expiresAtMs: nowMs + APPROVAL_LIFETIME_MS,
      callback,
    });
    await this.#noteSoon();
    return this.#view(executionId);
  }

  async find(caller: Caller, place: { sessionId: string; executionId: string }): Promise<Outcome<Execution>> {
    this.#store.expire(Date.now());
    const row = this.#own(caller, place);
    return row === undefined ? NOT_FOUND : success(viewOf(row, Date.now()));
  }

  async settled(
    caller: Caller,
    place: { sessionId: string; executionId: string },
    waitMs: number,
  ): Promise<Outcome<Execution>> {
    const found = await this.find(caller, place);
    if (!found.ok || isTerminal(found.value.status)) return found;
    const row = this.#store.byId(place.executionId);
    if (row?.status === 'approved' && row.isMade) return found;
    await this.#waits.wait(place.executionId, waitMs);
    return this.find(caller, place);
  }

  async ofSession(
    { subject }: Caller,
    sessionId: string,
    page: Parameters<ApprovalsPort['ofSession']>[2],
  ): Promise<Outcome<Execution[]>> {
    const nowMs = Date.now();
    this.#store.expire(nowMs);
    const rows = this.#store.ofSession({ sessionId, subject }, page);
    return success(rows.map((row) => viewOf(row, nowMs)));
  }

  async cancel(
    caller: Caller,
    place: { sessionId: string; executionId: string },
  ): Promise<Outcome<{ execution_id: string }>> {
    const row = this.#own(caller, place);
    if (row === undefined) return NOT_FOUND;
    const cancelled = this.#decided(row.executionId, {
      status: 'cancelled',
      by: caller.subject,
      reason: null,
    });
    if (cancelled) await this.#noteSoon();
    if (cancelled && row.call.madeBy === 'session') this.ctx.waitUntil(this.#tell());
    return cancelled
      ? success({ execution_id: row.executionId })
      : failure('execution_not_running', 'it does not wait any more');
  }

  async decide(by: string, executionId: string, { decision, reason }: Decision): Promise<Outcome<Execution>> {
    this.#store.expire(Date.now());
    const row = this.#store.byId(executionId);
    if (row === undefined) return NOT_FOUND;
    if (row.call.caller.subject === by)
      return failure('forbidden', 'somebody else has to decide about a call of your own');
    const status = decision === 'approve' ? ('approved' as const) : ('denied' as const);
    if (!this.#decided(executionId, { status, by, reason: reason ?? null }))
      return failure('approval_decided', `it is ${this.#store.byId(executionId)?.status ?? 'gone'} already`);
    logInfo('approval_decided', { execution_id: executionId, session_id: row.call.sessionId, status });
    await this.#noteSoon();
    // Whoever decides does not wait for the call.
    if (row.call.madeBy === 'session') this.ctx.waitUntil(this.#tell());
    else if (status === 'approved') this.ctx.waitUntil(this.#make(row));
    return this.#view(executionId);
  }

  async claimed(executionId: string): Promise<Outcome<null>> {
    this.#store.claim(executionId);
    return success(null);
  }

  async list(filter: { status: ApprovalStatus | null; limit: number }): Promise<Outcome<ApprovalRequest[]>> {
    this.#store.expire(Date.now());
    return success(this.#store.list(filter.status, filter.limit).map(requestOf));
  }

  override async alarm(): Promise<void> {
    const nowMs = Date.now();
    this.#store.expire(nowMs);
    this.#store.forget(nowMs - APPROVAL_MEMORY_MS);
    await this.#tell();
    await this.#note();
  }

  /** The alarm sees to it that it is among the events of the session, whatever comes between. */
  async #noteSoon(): Promise<void> {
    await this.ctx.storage.setAlarm(Date.now() + TELL_AGAIN_MS);
    this.ctx.waitUntil(this.#note());
  }

  async #note(): Promise<void> {
    try {
      for (const row of this.#store.unnoted(MAX_TOLD_AT_ONCE)) {
        const { caller, sessionId } = row.call;
        const session = this.env.SESSION.getByName(sessionObjectName(caller.tenant, sessionId));
        for (const { eventId, facts } of await approvalNews(row)) await session.noteApproval(eventId, facts);
        this.#store.noted(row.executionId, row.status);
      }
      for (const row of this.#store.owingEnd(MAX_TOLD_AT_ONCE)) await this.#noteEnd(row);
    } catch (error: unknown) {
      logWarning('approval_not_noted', { detail: messageOf(error) });
    }
    await this.#setAlarm();
  }

  /** Of a call that has ended without being made; one that is made has its end in its session. */
  async #noteEnd(row: ApprovalRow): Promise<void> {
    const { executionId, call, callback } = row;
    const execution = viewOf(row, Date.now());
    if (!isTerminal(execution.status) || this.#making.has(executionId)) return;
    const session = this.env.SESSION.getByName(sessionObjectName(call.caller.tenant, call.sessionId));
    await session.noteUnmade(await endEventId(executionId), execution, callback);
    this.#store.endNoted(executionId);
  }

  /** Sessions whose programs wait. One that cannot be reached now is told later; one that is gone has nothing to hear. */
  async #tell(): Promise<void> {
    for (const { executionId, call, status, reason } of this.#store.untold(MAX_TOLD_AT_ONCE)) {
      if (status === 'waiting') continue;
      const session = sessionCalls(this.env, call.caller.tenant, call.sessionId);
      const told = await session(
        (stub) => stub.approvalDecided(call.caller, executionId, { status, reason }),
        SAFE,
      );
      if (told.ok || told.code === 'not_found') this.#store.told(executionId);
      else logWarning('approval_not_told', { execution_id: executionId, code: told.code });
    }
    if (this.#store.untold(1).length > 0) await this.ctx.storage.setAlarm(Date.now() + TELL_AGAIN_MS);
  }

  async #make({ executionId, call, callback }: ApprovalRow): Promise<void> {
    this.#making.add(executionId);
    try {
      const configuration = await configurationOf(this.env);
      const onTaken = () => {
        this.#store.made(executionId);
        this.#waits.changed(executionId);
      };
      const about = { env: this.env, configuration, callback, onTaken };
      const made = await makeApproved(call, executionId, about);
      if (made.ok) return;
      this.#store.refuse(executionId, `${made.code}: ${made.detail}`);
      this.#waits.changed(executionId);
    } catch (error: unknown) {
      // It may have begun: what became of it is seen in its session, or not at all.
      logWarning('approved_call_lost', { execution_id: executionId, detail: messageOf(error) });
    } finally {
      this.#making.delete(executionId);
      await this.#noteSoon();
    }
  }

  #decided(
    executionId: string,
    { status, by, reason }: { status: ApprovalStatus; by: string; reason: string | null },
  ): boolean {
    const isDecided = this.#store.decide(executionId, {
      status,
      decidedAtMs: Date.now(),
      decidedBy: by,
      reason,
    });
    this.#waits.changed(executionId);
    return isDecided;
  }

  #own(
    caller: Caller,
    { sessionId, executionId }: { sessionId: string; executionId: string },
  ): ApprovalRow | undefined {
    const row = this.#store.byId(executionId);
    return row?.call.sessionId === sessionId && row.call.caller.subject === caller.subject ? row : undefined;
  }

  #view(executionId: string): Outcome<Execution> {
    const row = this.#store.byId(executionId);
    return row === undefined ? NOT_FOUND : success(viewOf(row, Date.now()));
  }

  async #setAlarm(): Promise<void> {
    const expiresAtMs = this.#store.nextExpiryMs();
    const left = [this.#store.untold(1), this.#store.unnoted(1), this.#store.owingEnd(1)];
    if (left.some((rows) => rows.length > 0)) {
      await this.ctx.storage.setAlarm(Date.now() + TELL_AGAIN_MS);
      return;
    }
    await this.ctx.storage.setAlarm(expiresAtMs ?? Date.now() + APPROVAL_LIFETIME_MS);
  }
}

const NOT_FOUND = failure('not_found', 'no such execution, or not yours');

function fingerprintOf({ caller, sessionId, tool, ...call }: WaitingCall): Promise<string> {
  return sha256Hex(JSON.stringify([caller.subject, sessionId, tool, call.arguments]));
}
