/**
 * Serves the files and background processes of the session: the bytes of a request go to the host as they come, and the
 * other way round.
 */
import * as z from 'zod';
import { type ArgumentConstraint, ArgumentConstraintSchema } from '../../../../shared/argument-constraint.ts';
import { utf8 } from '../../../../shared/encoding.ts';
import { ERRORS, type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import { SSE_HEARTBEAT_MS } from '../../../../shared/limits.ts';
import { LogEventSchema } from '../../../../shared/program.ts';
import {
  type TransferHead,
  type TransferRequest,
  TransferRequestSchema,
} from '../../../../shared/transfer.ts';
import type { Caller } from '../../caller.ts';
import { readCaller } from '../internal-request.ts';
import { notFound } from '../lifecycle/creation.ts';
import { FILE_HEADERS } from '../port.ts';
import type { SessionRuntime } from '../runtime.ts';
import type { Transfer, TransferFailure } from './transfer.ts';
import { discard, upload } from './upload.ts';

export async function serveTransfer(runtime: SessionRuntime, request: Request): Promise<Response> {
  const begun = await beginTransfer(runtime, request);
  if (!begun.ok) {
    await discard(request.body);
    return refused(begun);
  }
  const { asked, transfer, head } = begun;
  const headers = { [FILE_HEADERS.head]: JSON.stringify(head) };
  switch (asked.operation) {
    case 'write':
    case 'extract':
      return finished(transfer, await upload(transfer, request.body));
    case 'delete':
      return finished(transfer, success(null));
    case 'watch':
      return new Response(events(transfer, CHANGES), { headers });
    case 'process_logs':
      if (asked.follow) return new Response(events(transfer, LOGS), { headers });
      return new Response(download(transfer, null), { headers });
    default: {
      const { length } = head;
      if (length === 0 || (asked.operation === 'read' && asked.head)) return new Response(null, { headers });
      return new Response(download(transfer, length), { headers });
    }
  }
}

export interface BegunTransfer {
  ok: true;
  asked: TransferRequest;
  transfer: Transfer;
  head: TransferHead;
}

/** The transfer that a request asks for, once the host has taken it; `isWanted` says which the caller can serve. */
export async function beginTransfer(
  runtime: SessionRuntime,
  request: Request,
  isWanted: (asked: TransferRequest) => boolean = () => true,
): Promise<BegunTransfer | TransferFailure> {
  const caller = readCaller(request);
  const asked = readTransferRequest(request);
  const constraints = readConstraints(request);
  if (caller === undefined || asked === undefined || constraints === undefined || !isWanted(asked))
    return failure('internal', 'internal request: transfer');
  if (runtime.row.ownedBy(caller)?.state === 'suspended') {
    const woken = await runtime.waking.wake();
    if (!woken.ok) return woken;
  }
  const fault = stateFault(runtime, caller);
  if (fault !== undefined) return fault;
  const begun = await runtime.transfers.begin(asked, constraints);
  if (!begun.ok) return begun;
  const head = await begun.value.head;
  return head.ok ? { ok: true, asked, transfer: begun.value, head: head.value } : head;
}

function readTransferRequest(request: Request): TransferRequest | undefined {
  const text = request.headers.get(FILE_HEADERS.request);
  return text === null ? undefined : TransferRequestSchema.safeParse(JSON.parse(text)).data;
}

function readConstraints(request: Request): ArgumentConstraint[] | undefined {
  const text = request.headers.get(FILE_HEADERS.constraints);
  return text === null ? [] : z.array(ArgumentConstraintSchema).safeParse(JSON.parse(text)).data;
}

function stateFault({ row }: SessionRuntime, caller: Caller): Failure | undefined {
  const record = row.ownedBy(caller);
  if (record === undefined || record.state === 'destroying') {
    const missing = notFound();
    return missing.ok ? undefined : missing;
  }
  if (record.state === 'running' && record.pendingSnapshot === null) return undefined;
  if (record.state === 'error')
    return failure('session_failed', `the session has failed: ${record.errorCode ?? 'unknown'}`);
  const what = record.state === 'running' ? 'being suspended' : record.state;
  return failure('session_not_running', `the session is ${what}`, { retry_after_s: 1 });
}

export function refused(why: TransferFailure): Response {
  const { size, ...plain } = why;
  return Response.json(plain, {
    status: ERRORS[why.code].status,
    headers: size === undefined ? {} : { [FILE_HEADERS.size]: String(size) },
  });
}

async function finished(transfer: Transfer, before: Outcome<null>): Promise<Response> {
  if (!before.ok) transfer.cancel();
  const done = await transfer.done;
  return done.ok ? Response.json(done.value) : refused(done);
}

function download(transfer: Transfer, length: number | null): ReadableStream<Uint8Array> {
  const { readable, writable } =
    length === null ? new IdentityTransformStream() : new FixedLengthStream(length);
  void pass(transfer, writable);
  return readable;
}

/** A reader that went away ends the transfer; a transfer that failed cuts the reader off, who so knows that it is not whole. */
async function pass(transfer: Transfer, writable: WritableStream<Uint8Array>): Promise<void> {
  const writer = writable.getWriter();
  cutAtFailure(transfer, writer);
  try {
    for (let bytes = await transfer.next(); bytes !== undefined; bytes = await transfer.next()) {
      await writer.write(bytes);
      transfer.passedOn(bytes.length);
    }
    const done = await transfer.done;
    if (done.ok) await writer.close();
    else await writer.abort(new Error(done.detail));
  } catch {
    transfer.cancel();
    await writer.abort().catch(() => undefined);
  }
}

/** Also where a reader takes nothing: a write would wait for it as long as it likes, and hold the bytes of the window. */
function cutAtFailure(transfer: Transfer, writer: WritableStreamDefaultWriter<Uint8Array>): void {
  void transfer.done.then((done) => {
    if (!done.ok) writer.abort(new Error(done.detail)).catch(() => undefined);
  });
}

interface EventKind {
  greeting: string;
  ofLine: (line: string) => string;
  /** Why it is over where nothing failed. */
  endReason: string;
}

const CHANGES: EventKind = {
  greeting: ': watching\n\n',
  ofLine: (line) => `event: change\ndata: ${line}\n\n`,
  endReason: 'gone',
};

const LogLineSchema = z
  .string()
  .transform((line): unknown => JSON.parse(line))
  .pipe(LogEventSchema);

/** A reader that comes back names the position that it has read to. */
const LOGS: EventKind = {
  greeting: ': following\n\n',
  ofLine: (line) => {
    const event = LogLineSchema.parse(line);
    const { type, ...data } = event;
    const id = 'end' in event ? `id: ${event.end}\n` : 'to' in event ? `id: ${event.to}\n` : '';
    return `event: ${type}\n${id}data: ${JSON.stringify(data)}\n\n`;
  },
  endReason: 'exit',
};

/** Lines of JSON from the host as server-sent events. */
function events(transfer: Transfer, kind: EventKind): ReadableStream<Uint8Array> {
  const { readable, writable } = new IdentityTransformStream();
  void passEvents(transfer, writable.getWriter(), kind);
  return readable;
}

async function passEvents(
  transfer: Transfer,
  writer: WritableStreamDefaultWriter<Uint8Array>,
  { greeting, ofLine, endReason }: EventKind,
): Promise<void> {
  const decoder = new TextDecoder();
  let text = '';
  let next = transfer.next();
  try {
    await writer.write(utf8(greeting));
    for (;;) {
      const bytes = await orHeartbeat(next);
      if (bytes === 'heartbeat') {
        await writer.write(utf8(': heartbeat\n\n'));
        continue;
      }
      if (bytes === undefined) break;
      text += decoder.decode(bytes, { stream: true });
      const lines = text.split('\n');
      text = lines.pop() ?? '';
      await writer.write(utf8(lines.map(ofLine).join('')));
      transfer.passedOn(bytes.length);
      next = transfer.next();
    }
    const done = await transfer.done;
    const reason = done.ok ? endReason : done.code;
    await writer.write(utf8(`event: end\ndata: ${JSON.stringify({ reason })}\n\n`));
    await writer.close();
  } catch {
    transfer.cancel();
    await writer.abort().catch(() => undefined);
  }
}

async function orHeartbeat<T>(next: Promise<T>): Promise<T | 'heartbeat'> {
  const { promise, resolve } = Promise.withResolvers<'heartbeat'>();
  const timer = setTimeout(() => resolve('heartbeat'), SSE_HEARTBEAT_MS);
  try {
    return await Promise.race([next, promise]);
  } finally {
    clearTimeout(timer);
  }
}
