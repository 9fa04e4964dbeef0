/** Tokens that verify and that an operator has taken back: by their own id, by their subject, or by the API key they came of. */
export interface Bars {
  /** `jti` of tokens. */
  tokens: string[];
  /** API keys that are revoked and whose tokens may still live. */
  apiKeys: string[];
  /** Subjects, and the moment until which what was issued to them is refused. */
  subjects: { subject: string; untilMs: number }[];
}

export interface BarredCaller {
  tokenId: string;
  subject: string;
  issuedAtMs: number;
  /** The key that a token of this edge was given for. */
  apiKeyId: string | null;
}

/**
 * Programs, runs and calls that wait for an approval go on with rights of a token long after its own end. What was taken
 * back is known for as long as such rights last at most.
 */
export const RIGHTS_LIFETIME_MS = 400 * 86_400_000;

/** Why the caller's token is refused; undefined where it is not. */
export function barOf(bars: Bars, caller: BarredCaller): string | undefined {
  if (bars.tokens.includes(caller.tokenId)) return 'the token is revoked';
  if (caller.apiKeyId !== null && bars.apiKeys.includes(caller.apiKeyId)) return 'the API key is revoked';
  const ofSubject = bars.subjects.some(
    ({ subject, untilMs }) => subject === caller.subject && caller.issuedAtMs <= untilMs,
  );
  return ofSubject ? 'the tokens of the subject are revoked' : undefined;
}
