/** The transfers of one sandbox: begun by a grant, bounded in number and time, ended with their link. */

import { fromBase64 } from '../../shared/encoding.ts';
import { type Failure, failure, success } from '../../shared/errors.ts';
import { fileCallOf } from '../../shared/file-call.ts';
import type { TransferDown } from '../../shared/frames.ts';
import type { GrantClaims } from '../../shared/grant.ts';
import {
  actOf,
  isFileRequest,
  kindOf,
  MAX_OF_KIND,
  TRANSFER_STALL_MS,
  TransferCommandSchema,
  type TransferHead,
  type TransferOperation,
  type TransferRequest,
  windowOf,
} from '../../shared/transfer.ts';
import { checkConstraints } from '../execution/grant-check.ts';
import type { Log } from '../logging/log.ts';
import type { Sandbox } from '../sandbox/port.ts';
import { Incoming } from './incoming.ts';
import type { OperationEnd, OperationPlace } from './operation.ts';
import { cutShort, perform } from './operations.ts';
import { Outgoing } from './outgoing.ts';
import { performProgram } from './program-operations.ts';
import type { TransferFrame, TransferWire } from './wire.ts';

/** Grants of transfers that are remembered until they expire. */
const MAX_REMEMBERED_GRANTS = 8_192;
/** What an archive may have beside all that a session can write: files of its image, and the form of an archive. */
const ARCHIVE_ALLOWANCE_BYTES = 16 * 1024 ** 3;

export interface TransfersOptions {
  sessionId: string;
  epoch: number;
  sandbox: Pick<Sandbox, 'files' | 'programs'>;
  wire: TransferWire;
  log: Log;
  stallMs?: number;
  archiveAllowanceBytes?: number;
}

type TransferSubject = Pick<OperationPlace, 'path' | 'maxArchiveBytes'>;

interface Transfer {
  operation: TransferOperation;
  incoming: Incoming;
  outgoing: Outgoing;
  abort: AbortController;
  done: Promise<void>;
  movedAtMs: number;
}

export class Transfers {
  readonly #options: TransfersOptions;
  readonly #transfers = new Map<string, Transfer>();
  /** When each grant that was used expires. */
  readonly #usedGrants = new Map<string, number>();
  #isOver = false;

  constructor(options: TransfersOptions) {
    this.#options = options;
  }

  /** The claims were verified and bound to these payload bytes. What the transfer comes to is told on the link. */
  begin(claims: GrantClaims, payload: Uint8Array): Failure | undefined {
    const command = commandOf(payload);
    if (command === undefined || actOf(command.request.operation) !== claims.act)
      return failure('invalid_request', `not the payload of a grant of the act ${claims.act}`);
    const { transfer_id: id, request } = command;
    const used = this.#useGrant(claims);
    if (used === 'replayed') return failure('grant_replayed', 'the transfer of this grant was begun before');
    if (used === 'too many') {
      const detail = `${MAX_REMEMBERED_GRANTS} transfers were begun within the life of a grant`;
      this.#end(id, failure('too_many_transfers', detail));
      return undefined;
    }
    const held = isFileRequest(request) ? checkConstraints(claims, fileCallOf(request)) : success(null);
    if (!held.ok) {
      this.#end(id, held);
      return undefined;
    }
    const path = 'path' in request ? fromBase64(request.path) : new Uint8Array(0);
    const fault =
      path === undefined ? failure('invalid_request', 'path is not base64') : this.#fault(request, id);
    if (path === undefined || fault !== undefined) {
      if (fault !== undefined) this.#end(id, fault);
      return undefined;
    }
    this.#start(id, request, { path, maxArchiveBytes: this.#maxArchiveBytes(claims) });
    return undefined;
  }

  /** False where the edge breaks the protocol. Of a transfer that has ended, whatever comes is late. */
  receive(frame: TransferDown, payload: Uint8Array): boolean {
    const transfer = this.#transfers.get(frame.transfer_id);
    if (transfer === undefined || frame.epoch !== this.#options.epoch) return true;
    transfer.movedAtMs = performance.now();
    switch (frame.type) {
      case 'file_data':
        return transfer.incoming.push(frame.offset, payload);
      case 'file_end':
        return transfer.incoming.end(frame.bytes);
      case 'file_taken':
        return transfer.outgoing.taken(frame.bytes);
      case 'file_cancel':
        transfer.abort.abort();
        return true;
    }
  }

  linkDown(): void {
    for (const { abort } of this.#transfers.values()) abort.abort();
  }

  /** Nothing is begun from now on. Settles when nothing is under way. */
  async end(): Promise<void> {
    this.#isOver = true;
    const all = [...this.#transfers.values()];
    this.linkDown();
    await Promise.all(all.map(({ done }) => done));
  }

  #useGrant({ jti, exp }: GrantClaims): 'used' | 'replayed' | 'too many' {
    const nowS = Date.now() / 1000;
    for (const [used, expiresS] of this.#usedGrants) {
      if (expiresS > nowS) break;
      this.#usedGrants.delete(used);
    }
    if (this.#usedGrants.has(jti)) return 'replayed';
    if (this.#usedGrants.size >= MAX_REMEMBERED_GRANTS) return 'too many';
    this.#usedGrants.set(jti, exp);
    return 'used';
  }

  #fault({ operation }: TransferRequest, id: string): Failure | undefined {
    if (this.#isOver) return failure('transfer_failed', 'the sandbox is ending');
    if (this.#transfers.has(id)) return failure('grant_replayed', 'a transfer of this name is under way');
    const kind = kindOf(operation);
    const count = [...this.#transfers.values()].filter((other) => kindOf(other.operation) === kind).length;
    const limit = MAX_OF_KIND[kind];
    if (count < limit) return undefined;
    return failure('too_many_transfers', `${limit} transfers of this kind are under way in this session`);
  }

  #maxArchiveBytes({ limits }: GrantClaims): number {
    const { archiveAllowanceBytes = ARCHIVE_ALLOWANCE_BYTES } = this.#options;
    return limits.workspace_bytes + limits.tmp_bytes + archiveAllowanceBytes;
  }

  #start(id: string, request: TransferRequest, what: TransferSubject): void {
    const abort = new AbortController();
    const moved = (): void => {
      transfer.movedAtMs = performance.now();
    };
    const windowBytes = windowOf(request.operation);
    const incoming = new Incoming(abort.signal, windowBytes, (bytes) => {
      moved();
      this.#send(id, { type: 'file_taken', bytes });
    });
    const outgoing = new Outgoing(abort.signal, windowBytes, (offset, bytes) => {
      moved();
      return this.#send(id, { type: 'file_data', offset }, bytes);
    });
    const transfer: Transfer = {
      operation: request.operation,
      incoming,
      outgoing,
      abort,
      done: Promise.resolve(),
      movedAtMs: performance.now(),
    };
    this.#transfers.set(id, transfer);
    transfer.done = this.#run(id, transfer, request, what);
  }

  async #run(id: string, transfer: Transfer, request: TransferRequest, what: TransferSubject): Promise<void> {
    const { log, sessionId, stallMs = TRANSFER_STALL_MS } = this.#options;
    const startedAtMs = performance.now();
    const watchdog = setInterval(() => {
      if (kindOf(request.operation) === 'files' && performance.now() - transfer.movedAtMs >= stallMs)
        transfer.abort.abort();
    }, stallMs / 4).unref();
    let end: OperationEnd;
    try {
      end = await this.#perform(id, transfer, request, what);
    } catch (error: unknown) {
      log.error({ event: 'transfer_fault', detail: messageOf(error) });
      end = cutShort(what.path, 'the transfer failed');
    }
    clearInterval(watchdog);
    this.#transfers.delete(id);
    this.#end(id, end);
    log.info({
      event: 'transfer_finished',
      session_id: sessionId,
      act: request.operation,
      status: end.ok ? 'succeeded' : end.code,
      bytes: transfer.incoming.bytes + transfer.outgoing.bytes,
      duration_ms: Math.round(performance.now() - startedAtMs),
    });
  }

  #perform(
    id: string,
    { abort, incoming, outgoing }: Transfer,
    request: TransferRequest,
    what: TransferSubject,
  ): Promise<OperationEnd> {
    const { files, programs } = this.#options.sandbox;
    const head = (told: TransferHead): boolean => this.#send(id, { type: 'file_head', head: told });
    const place = { signal: abort.signal, head, incoming, outgoing };
    return 'path' in request
      ? perform(request, { ...place, ...what, files })
      : performProgram(request, { ...place, programs });
  }

  #end(id: string, end: OperationEnd): void {
    if (end.ok) {
      this.#send(id, { type: 'file_done', result: end.value });
      return;
    }
    const { code, detail, size } = end;
    this.#send(id, { type: 'file_failed', code, detail: detail.slice(0, 8_192), size: size ?? null });
  }

  #send(id: string, frame: TransferFrame, payload?: Uint8Array): boolean {
    const { epoch, wire } = this.#options;
    return wire.sendTransfer({ ...frame, epoch, transfer_id: id }, payload);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : 'unknown';
}

function commandOf(payload: Uint8Array) {
  try {
    const json: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload));
    return TransferCommandSchema.safeParse(json).data;
  } catch {
    return undefined;
  }
}
