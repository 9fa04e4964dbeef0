import { Hono } from 'hono';
import { describe, expect, test, vi } from 'vitest';
import { ERRORS, type ErrorCode, failure } from '../../../shared/errors.ts';
import type { AppEnvironment } from '../../../worker/middleware/app-environment.ts';
import { callObject } from '../../../worker/middleware/call-object.ts';
import { envelope } from '../../../worker/middleware/envelope.ts';
import { problemResponse, renderError } from '../../../worker/middleware/problem.ts';
import { Refusal } from '../../../worker/middleware/refusal.ts';

/** The whole list: a code that is added, dropped or answered otherwise is a change of the contract. */
const TABLE = {
  invalid_request: [400, false],
  invalid_json: [400, false],
  payload_too_large: [413, false],
  unsupported_media_type: [415, false],
  not_found: [404, false],
  method_not_allowed: [405, false],
  unauthenticated: [401, false],
  insufficient_scope: [403, false],
  policy_refused: [403, false],
  issuer_unavailable: [503, true],
  forbidden: [403, false],
  rate_limited: [429, true],
  queue_full: [429, true],
  quota_exceeded: [429, true],
  budget_exhausted: [403, false],
  idempotency_conflict: [422, false],
  idempotency_in_progress: [409, true],
  illegal_transition: [409, false],
  session_not_running: [409, true],
  session_failed: [409, false],
  session_deleted: [410, false],
  execution_not_running: [409, false],
  call_not_pending: [409, false],
  program_waiting: [409, true],
  receipt_pending: [409, true],
  tool_not_found: [404, false],
  source_exists: [409, false],
  source_owned: [409, false],
  tool_exists: [409, false],
  tool_unavailable: [409, false],
  approval_required: [403, false],
  approval_decided: [409, false],
  image_not_found: [422, false],
  no_host_available: [503, true],
  host_unresponsive: [504, true],
  host_lost: [503, true],
  object_reset: [503, true],
  overloaded: [503, true],
  internal: [500, true],
  is_directory: [409, false],
  not_a_directory: [409, false],
  not_a_regular_file: [409, false],
  directory_not_empty: [409, false],
  permission_denied: [403, false],
  no_space: [507, false],
  file_refused: [422, false],
  archive_refused: [422, false],
  precondition_failed: [412, false],
  range_not_satisfiable: [416, false],
  digest_mismatch: [422, false],
  too_many_transfers: [429, true],
  transfer_failed: [503, true],
  too_many_programs: [429, true],
  program_not_started: [422, false],
  suspend_failed: [503, true],
  snapshot_mismatch: [409, false],
  snapshot_damaged: [422, false],
  restore_failed: [503, true],
  storage_unavailable: [503, true],
  no_grant: [403, false],
  grant_invalid: [403, false],
  grant_expired: [403, true],
  grant_replayed: [403, false],
  wrong_host: [403, false],
  wrong_session: [403, false],
  args_mismatch: [403, false],
  fenced: [409, false],
  limits_exceeded: [422, false],
  image_refused: [422, false],
  egress_refused: [422, false],
  tool_refused: [422, false],
  key_set_rollback: [403, false],
  host_full: [503, true],
  host_degraded: [503, true],
  sandbox_failed: [503, true],
  enrollment_refused: [401, false],
  proof_refused: [401, false],
  protocol_violation: [400, false],
} satisfies Record<ErrorCode, [number, boolean]>;

describe('the table of codes', () => {
  test('is this one', () => {
    const table = Object.entries(ERRORS).map(([code, { status, retryable }]) => [code, [status, retryable]]);
    expect(Object.fromEntries(table)).toEqual(TABLE);
  });

  test.each(Object.entries(ERRORS))(
    'renders %s as a problem',
    async (code, { status, retryable, reason }) => {
      const refused = failure(code as ErrorCode, 'what happened');
      const response = problemResponse(refused, 'req_AAAAAAAAAAAAAAAAAAAAAA');
      expect(response.status).toBe(status);
      expect(response.headers.get('Content-Type')).toBe('application/problem+json');
      expect(response.headers.has('Retry-After')).toBe(retryable);
      expect(await response.json()).toEqual({
        type: `urn:sandgate:error:${code}`,
        title: reason,
        status,
        code,
        detail: 'what happened',
        retryable,
        request_id: 'req_AAAAAAAAAAAAAAAAAAAAAA',
      });
    },
  );
});

function appThat(fails: () => never): Hono<AppEnvironment> {
  const app = new Hono<AppEnvironment>();
  app.onError(renderError);
  app.use(envelope);
  app.get('/', fails);
  return app;
}

describe('a fault', () => {
  test('that nobody foresaw is logged with the request id, and answered without its detail', async () => {
    const logged = vi.spyOn(console, 'error').mockImplementation(() => {});
    const response = await appThat(() => {
      throw new TypeError('secret path /srv/keys');
    }).request('/', undefined, {});
    const text = await response.text();
    expect(response.status).toBe(500);
    expect(text).not.toContain('secret');
    const line = String(logged.mock.calls[0]?.[0]);
    expect(line).toContain('secret path');
    expect(line).toContain(String(response.headers.get('Request-Id')));
    expect(line).not.toContain('\n');
    vi.restoreAllMocks();
  });

  test('that is a refusal keeps its violations, headers and time to wait', async () => {
    const violations = [{ path: 'body.x', expected: 'y' }];
    const refusal = failure('rate_limited', 'slower', { retry_after_s: 2.2, violations });
    const response = await appThat(() => {
      throw new Refusal(refusal, { 'X-More': '1' });
    }).request('/', undefined, {});
    expect(response.status).toBe(429);
    expect(response.headers.get('Retry-After')).toBe('3');
    expect(response.headers.get('X-More')).toBe('1');
    expect(await response.json()).toMatchObject({ violations });
  });
});

describe('R24: a call into an object', () => {
  const marked = (marks: object) => Object.assign(new Error('broken'), marks);

  function failing(faults: readonly Error[]) {
    const left = [...faults];
    let calls = 0;
    return {
      calls: () => calls,
      call: async () => {
        calls += 1;
        const fault = left.shift();
        if (fault !== undefined) throw fault;
        return { ok: true as const, value: 'answer' };
      },
    };
  }

  test.each([
    ['marked retryable', { retryable: true }],
    ['marked as reset', { durableObjectReset: true }],
  ])('that is safe is repeated once after a fault %s', async (_name, marks) => {
    const once = failing([marked(marks)]);
    expect(await callObject(once.call, { safe: true })).toEqual({ ok: true, value: 'answer' });
    const twice = failing([marked(marks), marked(marks)]);
    expect(await callObject(twice.call, { safe: true })).toMatchObject({ code: 'object_reset' });
    expect(twice.calls()).toBe(2);
  });

  test('that is not safe is never repeated, and says when to try again', async () => {
    const target = failing([marked({ retryable: true })]);
    expect(await callObject(target.call, { safe: false })).toMatchObject({
      code: 'object_reset',
      retry_after_s: 1,
    });
    expect(target.calls()).toBe(1);
  });

  test('into an overloaded object is never repeated', async () => {
    const target = failing([marked({ overloaded: true, retryable: true })]);
    expect(await callObject(target.call, { safe: true })).toMatchObject({ code: 'overloaded' });
    expect(target.calls()).toBe(1);
  });

  test('that fails otherwise is a fault of ours', async () => {
    const target = failing([new TypeError('a bug')]);
    await expect(callObject(target.call, { safe: true })).rejects.toThrow('a bug');
  });
});
