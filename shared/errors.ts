/**
 * The closed list of failure codes. Every refusal of the gateway and of the host is one of these; the HTTP status
 * is what the gateway answers with when the code is the reason for a refused request.
 */
export const ERRORS = {
  // The request itself
  invalid_request: { status: 400, retryable: false, reason: 'a value in the request is missing or wrong' },
  invalid_json: { status: 400, retryable: false, reason: 'the body is not JSON' },
  payload_too_large: { status: 413, retryable: false, reason: 'the body or a value in it is over its limit' },
  unsupported_media_type: { status: 415, retryable: false, reason: 'the body is not application/json' },
  not_found: { status: 404, retryable: false, reason: 'no such thing, or not yours' },
  method_not_allowed: { status: 405, retryable: false, reason: 'the route does not have this method' },
  // Who asks
  unauthenticated: { status: 401, retryable: false, reason: 'no valid bearer token' },
  insufficient_scope: { status: 403, retryable: false, reason: 'the token lacks a scope' },
  policy_refused: {
    status: 403,
    retryable: false,
    reason: 'the tool policy of the token does not allow the tool, or not with this argument',
  },
  issuer_unavailable: {
    status: 503,
    retryable: true,
    reason: 'the keys of the token issuer cannot be had',
  },
  forbidden: { status: 403, retryable: false, reason: 'this kind of token may not use this route' },
  // Limits
  rate_limited: { status: 429, retryable: true, reason: 'the tenant sends requests faster than its rate' },
  queue_full: { status: 429, retryable: true, reason: 'too many executions wait in this session' },
  quota_exceeded: { status: 429, retryable: true, reason: 'the tenant is at a quota' },
  budget_exhausted: {
    status: 403,
    retryable: false,
    reason: 'the session has used up what it may use in its life',
  },
  // State
  idempotency_conflict: {
    status: 422,
    retryable: false,
    reason: 'the idempotency key was used with another request',
  },
  idempotency_in_progress: {
    status: 409,
    retryable: true,
    reason: 'the first request with this idempotency key is still being accepted',
  },
  illegal_transition: {
    status: 409,
    retryable: false,
    reason: 'the session cannot move between these states',
  },
  session_not_running: {
    status: 409,
    retryable: true,
    reason: 'the session is not in a state that runs calls',
  },
  session_failed: { status: 409, retryable: false, reason: 'the session has failed and runs nothing more' },
  session_deleted: { status: 410, retryable: false, reason: 'the session was deleted' },
  execution_not_running: { status: 409, retryable: false, reason: 'the execution is not running' },
  call_not_pending: {
    status: 409,
    retryable: false,
    reason: 'the call of the program has an answer, needs none, or its program has ended',
  },
  program_waiting: {
    status: 409,
    retryable: true,
    reason: 'a program before the call in the same message waits for an answer from outside',
  },
  receipt_pending: { status: 409, retryable: true, reason: 'the execution has no receipt yet' },
  tool_not_found: { status: 404, retryable: false, reason: 'no such tool, or not yours to call' },
  tool_exists: { status: 409, retryable: false, reason: 'another tool has this name and version' },
  source_exists: { status: 409, retryable: false, reason: 'another tool source has this name' },
  source_owned: {
    status: 409,
    retryable: false,
    reason: 'the name belongs to a tool of a source, or a source asks for the name of a registered tool',
  },
  tool_unavailable: {
    status: 409,
    retryable: false,
    reason: 'the tool is disabled, broken, or executed by its caller',
  },
  approval_required: { status: 403, retryable: false, reason: 'the tool needs an approval for each call' },
  approval_decided: {
    status: 409,
    retryable: false,
    reason: 'the call does not wait for an approval any more',
  },
  image_not_found: { status: 422, retryable: false, reason: 'no host has this image' },
  // Files of a session
  is_directory: { status: 409, retryable: false, reason: 'the path names a directory' },
  not_a_directory: { status: 409, retryable: false, reason: 'a part of the path is not a directory' },
  not_a_regular_file: {
    status: 409,
    retryable: false,
    reason: 'it is a FIFO, a socket or a device, and no file',
  },
  directory_not_empty: { status: 409, retryable: false, reason: 'the directory is not empty' },
  permission_denied: {
    status: 403,
    retryable: false,
    reason: 'the file system of the sandbox does not allow it',
  },
  no_space: { status: 507, retryable: false, reason: 'the disk of the sandbox is full' },
  file_refused: {
    status: 422,
    retryable: false,
    reason: 'the file system of the sandbox refused the operation',
  },
  archive_refused: {
    status: 422,
    retryable: false,
    reason: 'not a tar archive, or an entry of it is not extracted',
  },
  precondition_failed: { status: 412, retryable: false, reason: 'the file is not as the condition says' },
  range_not_satisfiable: { status: 416, retryable: false, reason: 'the range lies outside of the file' },
  digest_mismatch: { status: 422, retryable: false, reason: 'the bytes do not hash to the digest' },
  too_many_transfers: { status: 429, retryable: true, reason: 'too many transfers of this session at once' },
  transfer_failed: { status: 503, retryable: true, reason: 'the transfer was cut; nothing was replaced' },
  // Terminals and background processes
  too_many_programs: {
    status: 429,
    retryable: true,
    reason: 'too many terminals or background processes of this session at once',
  },
  program_not_started: { status: 422, retryable: false, reason: 'the program could not be started' },
  // Snapshots
  suspend_failed: {
    status: 503,
    retryable: true,
    reason: 'no snapshot could be made; the session runs on as it was',
  },
  snapshot_mismatch: {
    status: 409,
    retryable: false,
    reason:
      'no host has the image, the runsc version, the platform, the CPU features and the guest programs of the snapshot',
  },
  snapshot_damaged: {
    status: 422,
    retryable: false,
    reason: 'what is stored of the snapshot does not verify',
  },
  restore_failed: { status: 503, retryable: true, reason: 'no sandbox could be made of the snapshot' },
  storage_unavailable: {
    status: 503,
    retryable: true,
    reason: 'the storage of snapshots, outputs and artifacts does not answer',
  },
  // Hosts
  no_host_available: { status: 503, retryable: true, reason: 'no host has room' },
  host_unresponsive: { status: 504, retryable: true, reason: 'the host did not answer in time' },
  host_lost: { status: 503, retryable: true, reason: 'the host of the session is gone' },
  object_reset: { status: 503, retryable: true, reason: 'the session object restarted during the call' },
  overloaded: { status: 503, retryable: true, reason: 'too much work at once' },
  internal: { status: 500, retryable: true, reason: 'a fault of the gateway' },
  // What a host says of a grant (the execution ends as `refused`)
  no_grant: { status: 403, retryable: false, reason: 'the command carries no grant' },
  grant_invalid: { status: 403, retryable: false, reason: 'the grant does not verify' },
  grant_expired: { status: 403, retryable: true, reason: 'the grant is expired or not yet valid' },
  grant_replayed: { status: 403, retryable: false, reason: 'the grant was used before' },
  wrong_host: { status: 403, retryable: false, reason: 'the grant names another host' },
  wrong_session: {
    status: 403,
    retryable: false,
    reason: 'the grant names another session, tenant or execution',
  },
  args_mismatch: { status: 403, retryable: false, reason: 'the arguments do not hash to the grant' },
  fenced: { status: 409, retryable: false, reason: 'the epoch or sequence is lower than one already seen' },
  limits_exceeded: { status: 422, retryable: false, reason: 'the limits are above what the host allows' },
  image_refused: {
    status: 422,
    retryable: false,
    reason: 'the host does not have the image with this digest',
  },
  egress_refused: {
    status: 422,
    retryable: false,
    reason: 'the host does not give a session this way out',
  },
  tool_refused: { status: 422, retryable: false, reason: 'the host does not have this tool in this version' },
  key_set_rollback: { status: 403, retryable: false, reason: 'the key set is older than the pinned one' },
  host_full: { status: 503, retryable: true, reason: 'the host has no room' },
  host_degraded: { status: 503, retryable: true, reason: 'the host cannot journal and takes no work' },
  sandbox_failed: { status: 503, retryable: true, reason: 'the sandbox did not start' },
  // Enrolment and links
  enrollment_refused: {
    status: 401,
    retryable: false,
    reason: 'the enrolment token is unknown, used, revoked or expired, or the key of the host was revoked',
  },
  proof_refused: { status: 401, retryable: false, reason: 'the host did not prove possession of its key' },
  protocol_violation: { status: 400, retryable: false, reason: 'a frame does not follow the link protocol' },
} as const satisfies Record<string, { status: number; retryable: boolean; reason: string }>;

export type ErrorCode = keyof typeof ERRORS;

/** Where a value was wrong and what was expected there. */
export interface Violation {
  /** Path into the request, for example `body.arguments.code` or `header.Idempotency-Key`. */
  path: string;
  expected: string;
  /** What came, where it can be said in short. */
  received?: string;
}

/** The limit that a request would pass. */
export interface LimitReached {
  name: string;
  scope: 'tenant' | 'subject' | 'session';
  limit: number;
  /** What is used or reserved of it already, in the unit of the limit. */
  used: number;
  /** When it begins anew; null where it does not by itself. */
  resets_at: string | null;
}

/** A failure as a value: what object calls and host functions return instead of throwing. */
export interface Failure {
  ok: false;
  code: ErrorCode;
  detail: string;
  violations?: Violation[];
  retry_after_s?: number;
  limit?: LimitReached;
}

export type Outcome<T> = { ok: true; value: T } | Failure;

export function success<T>(value: T): { ok: true; value: T } {
  return { ok: true, value };
}

export function failure(code: ErrorCode, detail: string, more: Omit<Partial<Failure>, 'ok'> = {}): Failure {
  return { ...more, ok: false, code, detail };
}
