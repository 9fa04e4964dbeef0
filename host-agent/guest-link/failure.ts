/** How calls into a sandbox fail: as values, with a closed list of reasons. */
export type GuestFailureReason =
  | 'link_closed'
  | 'malformed_frame'
  | 'timeout'
  | 'spawn_failed'
  | 'channel_ended'
  | 'protocol'
  | 'file'
  | 'limit';

export interface GuestFailure {
  readonly reason: GuestFailureReason;
  readonly message: string;
  /** Name of the error the guest's kernel gave, as `ENOENT`. */
  readonly errno?: string;
}

export type GuestResult<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly failure: GuestFailure };

export function succeed<T>(value: T): GuestResult<T> {
  return { ok: true, value };
}

export function fail(
  reason: GuestFailureReason,
  message: string,
  errno?: string,
): { readonly ok: false; readonly failure: GuestFailure } {
  return { ok: false, failure: errno === undefined ? { reason, message } : { reason, message, errno } };
}
