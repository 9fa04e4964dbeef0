/** Checks that need the edge: whether it can be reached, and whether the two clocks agree. */
import { request } from 'undici';
import { MAX_CLOCK_SKEW_S } from '../../../shared/limits.ts';
import { type Finding, fail, pass, warn } from './finding.ts';

const TIMEOUT_MS = 10_000;
const PATH = '/.well-known/jwks.json';
const SKEW_WARNING_S = 5;

export type EdgeAnswer =
  | { ok: true; roundTripMs: number; aheadMs: number | null }
  | { ok: false; reason: string };

/** `aheadMs`: how far the edge's clock is ahead of ours, at least; 0 within what cannot be told. */
export async function askEdge(edgeUrl: string): Promise<EdgeAnswer> {
  const beganMs = performance.now();
  const beganAt = Date.now();
  try {
    const { statusCode, headers, body } = await request(new URL(PATH, edgeUrl), {
      headersTimeout: TIMEOUT_MS,
      bodyTimeout: TIMEOUT_MS,
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    await body.dump();
    const roundTripMs = performance.now() - beganMs;
    if (statusCode !== 200) return { ok: false, reason: `${PATH} answered ${statusCode}` };
    const date = typeof headers.date === 'string' ? Date.parse(headers.date) : Number.NaN;
    return { ok: true, roundTripMs, aheadMs: Number.isNaN(date) ? null : ahead(date, beganAt, roundTripMs) };
  } catch (error: unknown) {
    return { ok: false, reason: error instanceof Error ? error.message || error.name : 'no answer' };
  }
}

/** The edge wrote the second `dateMs` some time between our sending and our receiving. */
export function ahead(dateMs: number, sentAtMs: number, roundTripMs: number): number {
  const receivedAtMs = sentAtMs + roundTripMs;
  if (dateMs > receivedAtMs) return dateMs - receivedAtMs;
  if (dateMs + 1000 < sentAtMs) return dateMs + 1000 - sentAtMs;
  return 0;
}

export function checkReach(edgeUrl: string | undefined, answer: EdgeAnswer | undefined): Finding {
  if (edgeUrl === undefined || answer === undefined) {
    return fail('edge', 'no edge is set', 'sandgate-host enroll <edge URL> <token>');
  }
  if (!answer.ok) {
    return fail(
      'edge',
      `${edgeUrl}: ${answer.reason}`,
      'check DNS, the way out on its port, and the machine’s certificates (ca-certificates)',
    );
  }
  return pass('edge', `${edgeUrl} answers in ${Math.round(answer.roundTripMs)} ms`);
}

/** `hostAheadMs`: what the agent knows of its last link; it goes before what the edge's answer says. */
export function checkClock(answer: EdgeAnswer | undefined, hostAheadMs: number | null): Finding {
  const edgeAheadMs = hostAheadMs === null ? edgeAhead(answer) : -hostAheadMs;
  if (edgeAheadMs === null) {
    return warn(
      'clock',
      'cannot be compared with the edge',
      'keep it right with chrony or systemd-timesyncd',
    );
  }
  const skewS = Math.round(edgeAheadMs / 100) / 10;
  const found =
    Math.abs(skewS) < 1
      ? 'agrees with the edge'
      : `${Math.abs(skewS)} s ${skewS > 0 ? 'behind' : 'ahead of'} the edge`;
  const cure = 'set the clock: install chrony or systemd-timesyncd';
  if (Math.abs(skewS) > MAX_CLOCK_SKEW_S)
    return fail('clock', `${found}; grants are refused above ${MAX_CLOCK_SKEW_S} s`, cure);
  return Math.abs(skewS) > SKEW_WARNING_S ? warn('clock', found, cure) : pass('clock', found);
}

function edgeAhead(answer: EdgeAnswer | undefined): number | null {
  return answer?.ok === true ? answer.aheadMs : null;
}
