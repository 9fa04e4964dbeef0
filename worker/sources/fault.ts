/** What went wrong with a source, in words for the tenant whose it is: never the text of an answer, nor a secret. */

/** Errors of our own say what may be shown. */
const OWN = ['AddressRefused', 'AnswerTooLarge', 'ServerFault', 'TokenRefused'];
const MAX_MESSAGE_CHARACTERS = 400;
export const NO_ANSWER = 'the server did not answer in time';
export const UNREACHABLE = 'the server cannot be reached, or its answer cannot be read';

export function messageOfFault(error: unknown): string {
  return ownMessage(error) ?? (isTimeout(error) ? NO_ANSWER : UNREACHABLE);
}

/** Whoever throws one may find it wrapped. */
export function ownMessage(error: unknown): string | undefined {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth += 1) {
    if (OWN.includes(at.name)) return at.message.slice(0, MAX_MESSAGE_CHARACTERS);
  }
  return undefined;
}

export function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.name === 'TimeoutError';
}
