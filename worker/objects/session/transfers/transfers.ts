/**
 * Transfers of files, and what is asked of terminals and background processes: beside executions, each under a grant and a
 * window of its own. Nothing of them is kept: one that loses its link has failed, and its caller is told so.
 */
import type { ArgumentConstraint } from '../../../../shared/argument-constraint.ts';
import { sha256Hex } from '../../../../shared/digest.ts';
import { utf8 } from '../../../../shared/encoding.ts';
import { type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import { encodeFrame, type TransferUp } from '../../../../shared/frames.ts';
import { newId } from '../../../../shared/ids.ts';
import { ATTACH_TIMEOUT_MS } from '../../../../shared/limits.ts';
import { MAX_WAIT_MS } from '../../../../shared/program.ts';
import {
  actOf,
  kindOf,
  MAX_OF_KIND,
  TRANSFER_STALL_MS,
  type TransferKind,
  type TransferRequest,
  windowOf,
} from '../../../../shared/transfer.ts';
import type { Configuration } from '../../../configuration.ts';
import { commandFrames } from '../../command-frames.ts';
import { logInfo } from '../../log.ts';
import { issueGrant } from '../executions/grants.ts';
import type { SessionLink } from '../link/link.ts';
import type { SessionRow } from '../rows/session-row.ts';
import { Transfer } from './transfer.ts';
import { answerBoundMs } from './transfer-bound.ts';

export interface TransfersPort {
  link: () => SessionLink;
  /** Makes the sandbox and its link usable; calls `usable` or `refuseWaiting` in the end. */
  prepare: () => void;
}

interface Active {
  transfer: Transfer;
  jti: string;
}

/** A terminal says itself when it is used. */
const ACTIVITY_STEP_MS = 5_000;

export class Transfers {
  readonly #row: SessionRow;
  readonly #configuration: Configuration;
  readonly #port: TransfersPort;
  readonly #active = new Map<string, Active>();
  /** Begun, and not yet sent to the host. */
  readonly #places: Record<TransferKind, number> = { files: 0, watches: 0, programs: 0 };
  #moving = 0;
  #waiting: ((usable: Outcome<null>) => void)[] = [];

  constructor(row: SessionRow, configuration: Configuration, port: TransfersPort) {
    this.#row = row;
    this.#configuration = configuration;
    this.#port = port;
  }

  /** Whether somebody waits for bytes, so that the session is not idle. Who only watches does not keep it. */
  get isMoving(): boolean {
    return this.#moving > 0;
  }

  /** Something was typed or shown: the session is not idle. */
  used(): void {
    const nowMs = Date.now();
    if (!this.#row.isLive || nowMs - this.#row.record.lastActivityAtMs < ACTIVITY_STEP_MS) return;
    this.#row.patch({ lastActivityAtMs: nowMs });
  }

  get isWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** Resolves when the host was asked. */
  async begin(
    request: TransferRequest,
    constraints: readonly ArgumentConstraint[] = [],
  ): Promise<Outcome<Transfer>> {
    const kind = kindOf(request.operation);
    const limit = MAX_OF_KIND[kind];
    if (this.#places[kind] >= limit) {
      return failure('too_many_transfers', `${limit} ${kind} of this session are under way`, {
        retry_after_s: 1,
      });
    }
    this.#takePlace(request, 1);
    const begun = await this.#begin(request, constraints).catch((error: unknown) => {
      this.#takePlace(request, -1);
      throw error;
    });
    if (!begun.ok) this.#takePlace(request, -1);
    return begun;
  }

  #takePlace({ operation }: TransferRequest, places: 1 | -1): void {
    const kind = kindOf(operation);
    this.#places[kind] += places;
    if (kind === 'files' || actOf(operation) === 'process') this.#moving += places;
  }

  async #begin(
    request: TransferRequest,
    constraints: readonly ArgumentConstraint[],
  ): Promise<Outcome<Transfer>> {
    const usable = await this.ready();
    if (!usable.ok) return usable;
    this.#row.patch({ lastActivityAtMs: Date.now() });
    const id = newId('trf');
    const payload = utf8(JSON.stringify({ transfer_id: id, request }));
    const { facts, epoch, grantSeq } = this.#row.record;
    const grant = await issueGrant(
      facts,
      {
        act: actOf(request.operation),
        epoch,
        // Outside of the order of executions, so it takes no number from them.
        seq: Math.max(1, grantSeq),
        payload: { sha256: await sha256Hex(payload) },
        constraints: this.#port.link().looksAtConstraints ? constraints : null,
        timeoutMs: request.operation === 'process_wait' ? MAX_WAIT_MS : TRANSFER_STALL_MS,
      },
      this.#configuration,
    );
    const transfer = new Transfer(
      (frame, bytes) => this.#port.link().send([encodeFrame({ ...frame, epoch, transfer_id: id }, bytes)]),
      { mayBeSilent: kindOf(request.operation) !== 'files', windowBytes: windowOf(request.operation) },
    );
    this.#active.set(id, { transfer, jti: grant.jti });
    const boundMs = answerBoundMs(request);
    const overdue = () => transfer.giveUp(failure('host_unresponsive', 'the host did not answer in time'));
    const timer = boundMs === null ? null : setTimeout(overdue, boundMs);
    void transfer.done.then((end) => {
      clearTimeout(timer);
      this.#ended(id, request, end.ok ? 'succeeded' : end.code, transfer.bytes);
    });
    if (!this.#port.link().send(commandFrames(grant.token, payload))) transfer.fail(linkLost());
    return success(transfer);
  }

  /** False where the host breaks the rules. What comes of a transfer that has ended is late, and nothing else. */
  receive(frame: TransferUp, payload: Uint8Array): boolean {
    if (frame.epoch !== this.#row.maybe?.epoch) return true;
    return this.#active.get(frame.transfer_id)?.transfer.receive(frame, payload) ?? true;
  }

  /** Sandbox and link are there. */
  usable(): void {
    if (!this.isWaiting || this.#row.maybe?.sandbox !== 'ready' || !this.#port.link().isUp) return;
    this.#wakeWaiting(success(null));
  }

  /** There will be no sandbox for them. */
  refuseWaiting(why: Failure): void {
    this.#wakeWaiting(why);
  }

  linkDown(): void {
    for (const { transfer } of this.#active.values()) transfer.fail(linkLost());
  }

  /** The session ends. */
  endAll(why: Failure): void {
    this.refuseWaiting(why);
    for (const { transfer } of this.#active.values()) transfer.fail(why);
  }

  /** Whether the grant was one of a transfer, which the host then did not begin. */
  refused(jti: string | null): boolean {
    for (const active of this.#active.values()) {
      if (active.jti !== jti) continue;
      active.transfer.fail(failure('transfer_failed', 'the host did not take the grant of the transfer'));
      return true;
    }
    return false;
  }

  /** Resolves when the sandbox and its link can be used; one that was lost is replaced. */
  async ready(): Promise<Outcome<null>> {
    this.#port.link().dropIfSilent(Date.now());
    if (this.#row.record.sandbox === 'ready' && this.#port.link().isUp) return success(null);
    const { promise, resolve } = Promise.withResolvers<Outcome<null>>();
    const timer = setTimeout(
      () => resolve(failure('host_unresponsive', 'the session has no sandbox in time')),
      ATTACH_TIMEOUT_MS,
    );
    this.#waiting.push(resolve);
    this.#port.prepare();
    const usable = await promise;
    clearTimeout(timer);
    this.#waiting = this.#waiting.filter((waiting) => waiting !== resolve);
    return usable;
  }

  #wakeWaiting(usable: Outcome<null>): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve(usable);
  }

  #ended(id: string, request: TransferRequest, status: string, bytes: number): void {
    const { operation } = request;
    this.#active.delete(id);
    this.#takePlace(request, -1);
    const record = this.#row.maybe;
    if (record === undefined) return;
    if (this.#row.isLive && kindOf(operation) !== 'watches')
      this.#row.patch({ lastActivityAtMs: Date.now() });
    logInfo('transfer_ended', { session_id: record.facts.sessionId, operation, status, bytes });
  }
}

function linkLost(): Failure {
  return failure('transfer_failed', 'the link to the host was lost', { retry_after_s: 1 });
}
