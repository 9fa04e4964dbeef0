import { describe, expect, test } from 'vitest';
import { fromBase64, fromBase64Url, toBase64, toBase64Url, utf8 } from '../../shared/encoding.ts';
import { ERRORS } from '../../shared/errors.ts';
import { formatCursor, parseCursor } from '../../shared/execution.ts';
import { decodeFrame, encodeFrame, SessionLinkUpSchema } from '../../shared/frames.ts';
import { isSessionIdOf, newId, newSessionId } from '../../shared/ids.ts';
import {
  ExecutionStatusSchema,
  isTerminal,
  moveExecution,
  moveSession,
  SessionStateSchema,
} from '../../shared/lifecycle.ts';
import { MAX_FRAME_BYTES } from '../../shared/limits.ts';
import { problemOf } from '../../shared/problem.ts';

async function tagKey(): Promise<CryptoKey> {
  return crypto.subtle.generateKey({ name: 'HMAC', hash: 'SHA-256' }, false, ['sign']) as Promise<CryptoKey>;
}

describe('a session id', () => {
  test('is recognised by the edge that made it, for the tenant it was made for', async () => {
    const key = await tagKey();
    const id = await newSessionId(key, 'acme');
    expect(await isSessionIdOf(key, 'acme', id)).toBe(true);
    expect(await isSessionIdOf(key, 'other', id)).toBe(false);
    expect(await isSessionIdOf(await tagKey(), 'acme', id)).toBe(false);
  });

  test('with any one character changed is not recognised', async () => {
    const key = await tagKey();
    const id = await newSessionId(key, 'acme');
    for (let index = 0; index < id.length; index += 1) {
      const other = id[index] === 'x' ? 'y' : 'x';
      expect(await isSessionIdOf(key, 'acme', id.slice(0, index) + other + id.slice(index + 1))).toBe(false);
    }
  });
});

describe('the state tables', () => {
  test('allow exactly the moves of a session that are drawn in the design', () => {
    const moves = SessionStateSchema.options.flatMap((from) =>
      SessionStateSchema.options.filter((to) => moveSession(from, to).ok).map((to) => `${from}>${to}`),
    );
    expect(moves).toEqual([
      'creating>running',
      'creating>error',
      'creating>destroying',
      'running>paused',
      'running>suspended',
      'running>error',
      'running>destroying',
      'paused>running',
      'paused>suspended',
      'paused>error',
      'paused>destroying',
      'suspended>running',
      'suspended>error',
      'suspended>destroying',
      'error>destroying',
      'destroying>error',
      'destroying>destroyed',
    ]);
  });

  test('name both states of an illegal move', () => {
    expect(moveSession('destroyed', 'running')).toMatchObject({
      code: 'illegal_transition',
      detail: 'the session cannot move from destroyed to running',
    });
  });

  test('let no terminal execution move anywhere', () => {
    for (const from of ExecutionStatusSchema.options.filter(isTerminal)) {
      for (const to of ExecutionStatusSchema.options) expect(moveExecution(from, to).ok).toBe(false);
    }
  });
});

describe('base64', () => {
  test('gives back the bytes and refuses every other spelling of them', () => {
    const bytes = utf8('any carnal pleas');
    expect(fromBase64(toBase64(bytes))).toEqual(bytes);
    expect(fromBase64Url(toBase64Url(bytes))).toEqual(bytes);
    expect(fromBase64('YQ')).toBeUndefined();
    expect(fromBase64('YR==')).toBeUndefined();
    expect(fromBase64(' YQ==')).toBeUndefined();
    expect(fromBase64Url('YR')).toBeUndefined();
    expect(fromBase64Url('YQ==')).toBeUndefined();
  });
});

describe('an event cursor', () => {
  test('survives being written and read', () => {
    const cursor = { executionId: newId('exe'), stdoutBytes: 12, stderrBytes: 0, otherEvents: 3 };
    expect(parseCursor(formatCursor(cursor))).toEqual(cursor);
  });

  test.each(['', 'exe_x:1:2:3', '1', `${newId('exe')}:1:2`, `${newId('exe')}:-1:2:3`])(
    '%o is none',
    (text) => {
      expect(parseCursor(text)).toBeUndefined();
    },
  );
});

describe('a frame', () => {
  const header = {
    type: 'output',
    epoch: 1,
    seq: 7,
    execution_id: newId('exe'),
    stream: 'stdout',
    offset: 0,
  };

  test('gives back header and payload', () => {
    const payload = new Uint8Array([0, 255, 10]);
    const decoded = decodeFrame(encodeFrame(header, payload), SessionLinkUpSchema);
    expect(decoded).toMatchObject({ ok: true, value: { header } });
    expect(decoded.ok ? [...decoded.value.payload] : []).toEqual([0, 255, 10]);
  });

  test.each([
    ['of no bytes', new Uint8Array(0)],
    ['of one byte', new Uint8Array(1)],
    ['over the cap', new Uint8Array(MAX_FRAME_BYTES + 1)],
    ['with a header longer than itself', new Uint8Array([255, 255, 1])],
    ['whose header is not JSON', new Uint8Array([0, 1, 123])],
    ['whose header is not UTF-8', new Uint8Array([0, 1, 255])],
    ['with a field too many', encodeFrame({ ...header, tenant: 'acme' })],
    ['with a field of the wrong type', encodeFrame({ ...header, seq: '7' })],
    ['of an unknown type', encodeFrame({ ...header, type: 'sudo' })],
  ])('%s is a protocol violation', (_name, bytes) => {
    expect(decodeFrame(bytes, SessionLinkUpSchema)).toMatchObject({ ok: false, code: 'protocol_violation' });
  });
});

describe('the list of errors', () => {
  test('is closed: code, status and whether to try again', () => {
    const rows = Object.entries(ERRORS).map(
      ([code, { status, retryable }]) => `${code} ${status} ${retryable}`,
    );
    expect(rows).toMatchInlineSnapshot(`
      [
        "invalid_request 400 false",
        "invalid_json 400 false",
        "payload_too_large 413 false",
        "unsupported_media_type 415 false",
        "not_found 404 false",
        "method_not_allowed 405 false",
        "unauthenticated 401 false",
        "insufficient_scope 403 false",
        "policy_refused 403 false",
        "issuer_unavailable 503 true",
        "forbidden 403 false",
        "rate_limited 429 true",
        "queue_full 429 true",
        "quota_exceeded 429 true",
        "budget_exhausted 403 false",
        "idempotency_conflict 422 false",
        "idempotency_in_progress 409 true",
        "illegal_transition 409 false",
        "session_not_running 409 true",
        "session_failed 409 false",
        "session_deleted 410 false",
        "execution_not_running 409 false",
        "call_not_pending 409 false",
        "program_waiting 409 true",
        "receipt_pending 409 true",
        "tool_not_found 404 false",
        "tool_exists 409 false",
        "source_exists 409 false",
        "source_owned 409 false",
        "tool_unavailable 409 false",
        "approval_required 403 false",
        "approval_decided 409 false",
        "image_not_found 422 false",
        "is_directory 409 false",
        "not_a_directory 409 false",
        "not_a_regular_file 409 false",
        "directory_not_empty 409 false",
        "permission_denied 403 false",
        "no_space 507 false",
        "file_refused 422 false",
        "archive_refused 422 false",
        "precondition_failed 412 false",
        "range_not_satisfiable 416 false",
        "digest_mismatch 422 false",
        "too_many_transfers 429 true",
        "transfer_failed 503 true",
        "too_many_programs 429 true",
        "program_not_started 422 false",
        "suspend_failed 503 true",
        "snapshot_mismatch 409 false",
        "snapshot_damaged 422 false",
        "restore_failed 503 true",
        "storage_unavailable 503 true",
        "no_host_available 503 true",
        "host_unresponsive 504 true",
        "host_lost 503 true",
        "object_reset 503 true",
        "overloaded 503 true",
        "internal 500 true",
        "no_grant 403 false",
        "grant_invalid 403 false",
        "grant_expired 403 true",
        "grant_replayed 403 false",
        "wrong_host 403 false",
        "wrong_session 403 false",
        "args_mismatch 403 false",
        "fenced 409 false",
        "limits_exceeded 422 false",
        "image_refused 422 false",
        "egress_refused 422 false",
        "tool_refused 422 false",
        "key_set_rollback 403 false",
        "host_full 503 true",
        "host_degraded 503 true",
        "sandbox_failed 503 true",
        "enrollment_refused 401 false",
        "proof_refused 401 false",
        "protocol_violation 400 false",
      ]
    `);
  });

  test('renders as a problem of RFC 9457', () => {
    const problem = problemOf({ ok: false, code: 'queue_full', detail: '64 wait' }, 'req_1');
    expect(problem).toEqual({
      type: 'urn:sandgate:error:queue_full',
      title: 'too many executions wait in this session',
      status: 429,
      code: 'queue_full',
      detail: '64 wait',
      retryable: true,
      request_id: 'req_1',
    });
  });
});
