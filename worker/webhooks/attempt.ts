/** One attempt to deliver a message: signed, bounded in time and size, and only to an address that it may have. */
import { utf8 } from '../../shared/encoding.ts';
import type { Event } from '../../shared/event.ts';
import type { AttemptOutcome } from '../objects/webhooks/port.ts';
import type { AddressRules } from '../tools/http/address.ts';
import { AddressRefused, boundedFetch } from '../tools/http/bounded-fetch.ts';
import { signatureOf } from './signature.ts';

const TIMEOUT_MS = 10_000;
/** Only the status of an answer is of interest. */
const MAX_ANSWER_BYTES = 64 * 1024;
const GONE = 410;

export interface Receiver {
  url: string;
  /** It is signed with each of them. */
  secrets: readonly string[];
}

export async function attempt(
  { url, secrets }: Receiver,
  event: Event,
  rules: AddressRules,
): Promise<AttemptOutcome> {
  const body = utf8(JSON.stringify(event));
  const timestamp = String(Math.floor(Date.now() / 1_000));
  const signatures = await Promise.all(
    secrets.map((secret) => signatureOf(secret, { id: event.id, timestamp }, body)),
  );
  try {
    const response = await boundedFetch(rules, MAX_ANSWER_BYTES)(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'user-agent': 'sandgate',
        'webhook-id': event.id,
        'webhook-timestamp': timestamp,
        'webhook-signature': signatures.filter((signature) => signature !== undefined).join(' '),
      },
      body,
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    await response.body?.cancel();
    return outcomeOf(response.status);
  } catch (error: unknown) {
    return { delivered: false, statusCode: null, message: messageOf(error), isGone: false };
  }
}

function outcomeOf(statusCode: number): AttemptOutcome {
  if (statusCode >= 200 && statusCode < 300) return { delivered: true, statusCode };
  const isRedirect = statusCode >= 300 && statusCode < 400;
  const message = `it was answered ${statusCode}${isRedirect ? ': no redirect is followed' : ''}`;
  return { delivered: false, statusCode, message, isGone: statusCode === GONE };
}

function messageOf(error: unknown): string {
  if (error instanceof AddressRefused) return error.message;
  const isTimeout = error instanceof Error && error.name === 'TimeoutError';
  return isTimeout ? `there was no answer within ${TIMEOUT_MS / 1_000} s` : 'it cannot be reached';
}
