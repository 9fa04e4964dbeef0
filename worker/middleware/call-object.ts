/** Calls into objects: what an object throws, or that it was reset, becomes a code that a caller can act on. */
import { failure, type Outcome } from '../../shared/errors.ts';

const RESET_RETRY_AFTER_S = 1;
const OVERLOADED_RETRY_AFTER_S = 2;

/**
 * `call` makes its own stub each time: one that threw is not used again. A safe call (it changes nothing) is
 * repeated once after a reset; others never, because the first may have had its effect.
 */
export async function callObject<T>(
  call: () => Promise<Outcome<T>>,
  about: { safe: boolean },
): Promise<Outcome<T>> {
  try {
    return await call();
  } catch (error: unknown) {
    const fault = faultOf(error);
    if (fault === 'overloaded') {
      return failure('overloaded', 'the object has too much to do', {
        retry_after_s: OVERLOADED_RETRY_AFTER_S,
      });
    }
    if (fault === 'other') throw error;
    if (about.safe) return callObject(call, { safe: false });
    return failure(
      'object_reset',
      'the object restarted during the call; whether it had an effect is unknown',
      {
        retry_after_s: RESET_RETRY_AFTER_S,
      },
    );
  }
}

/** The properties that the runtime puts on exceptions of objects. */
function faultOf(error: unknown): 'overloaded' | 'reset' | 'other' {
  if (!(error instanceof Error)) return 'other';
  const marked: Error & { overloaded?: unknown; retryable?: unknown; durableObjectReset?: unknown } = error;
  if (marked.overloaded === true) return 'overloaded';
  return marked.retryable === true || marked.durableObjectReset === true ? 'reset' : 'other';
}
