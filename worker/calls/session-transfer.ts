/** Asks a session object for a transfer: bytes pass through as they are, refusals as values. */
import * as z from 'zod';
import { type ErrorCode, type Failure, type Outcome, success } from '../../shared/errors.ts';
import {
  type TransferHead,
  TransferHeadSchema,
  type TransferRequest,
  type TransferResult,
  TransferResultSchema,
} from '../../shared/transfer.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { SAFE, UNSAFE } from '../objects/object-calls.ts';
import { FILE_HEADERS, INTERNAL_HEADERS, INTERNAL_PATHS } from '../objects/session/port.ts';
import { requireTransfer } from '../tools/held-call.ts';
import type { OwnSession } from './own-session.ts';
import { asciiJson, failureIn } from './session-stream.ts';

/** What any transfer of a session may be refused with. */
export const TRANSFER_ERRORS = [
  'not_found',
  'policy_refused',
  'too_many_transfers',
  'transfer_failed',
  'session_not_running',
  'quota_exceeded',
  'session_failed',
  'host_unresponsive',
  'host_lost',
  'no_host_available',
  'host_full',
  'host_degraded',
  'sandbox_failed',
] as const satisfies readonly ErrorCode[];

const INTERNAL_URL = `https://session${INTERNAL_PATHS.files}`;
const HeadHeaderSchema = z
  .string()
  .transform((text): unknown => JSON.parse(text))
  .pipe(TransferHeadSchema);

/** They change nothing, so one that an object's restart took is made again. */
const SAFE_OPERATIONS: ReadonlySet<string> = new Set([
  'read',
  'list',
  'process_list',
  'process_read',
  'process_logs',
  'process_wait',
]);

/** A transfer whose bytes come from the host. */
export async function readTransfer(
  session: OwnSession,
  request: TransferRequest,
): Promise<{ head: TransferHead; body: ReadableStream | null }> {
  const response = unwrap(await ask(session, request, null));
  const head = HeadHeaderSchema.parse(response.headers.get(FILE_HEADERS.head));
  return { head, body: response.body };
}

/** One whose bytes, if it has any, go to the host; it gives what came of it. */
export async function writeTransfer(
  session: OwnSession,
  request: TransferRequest,
  body: ReadableStream | null,
): Promise<TransferResult> {
  const response = unwrap(await ask(session, request, body));
  return TransferResultSchema.parse(await response.json());
}

function ask(
  session: OwnSession,
  request: TransferRequest,
  body: ReadableStream | null,
): Promise<Outcome<Response>> {
  const constraints = requireTransfer(session.toolPolicy, request);
  const isSafe = body === null && SAFE_OPERATIONS.has(request.operation);
  return session.call(
    async (stub) => {
      const headers = {
        [INTERNAL_HEADERS.caller]: asciiJson(session.caller),
        [FILE_HEADERS.request]: asciiJson(request),
        ...(constraints.length > 0 ? { [FILE_HEADERS.constraints]: asciiJson(constraints) } : {}),
      };
      const response = await stub.fetch(new Request(INTERNAL_URL, { method: 'POST', headers, body }));
      return response.status < 400 ? success(response) : refused(response);
    },
    isSafe ? SAFE : UNSAFE,
  );
}

async function refused(response: Response): Promise<Failure> {
  const size = response.headers.get(FILE_HEADERS.size);
  const why = await failureIn(response);
  if (size === null) return why;
  throw new Refusal(why, { 'Content-Range': `bytes */${size}` });
}
