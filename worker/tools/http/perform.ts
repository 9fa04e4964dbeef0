/** Makes the request of an HTTP tool: bounded in time, size and hops, and without a trace of its credentials. */
import { toBase64 } from '../../../shared/encoding.ts';
import { readBounded } from '../../identity/read-bounded.ts';
import { parseStrictJson } from '../../json/strict-json.ts';
import { type EdgeOutcome, edgeEnd, edgeFailure } from '../edge-execution.ts';
import { type AddressRules, addressFault } from './address.ts';
import type { ToolRequest } from './request.ts';

const MAX_HOPS = 3;
const MAX_ANSWER_BYTES = 1024 * 1024;
const BOUNDS = { maxDepth: 64, maxValues: 100_000 };
/** A shorter one would be found in texts that have nothing to do with it. */
const MIN_SECRET_CHARACTERS = 6;
const FIRST_ERROR_STATUS = 400;

export interface HttpCall {
  request: ToolRequest;
  credentials: Record<string, string>;
  rules: AddressRules;
  timeoutMs: number;
  signal: AbortSignal;
}

export async function performHttp(call: HttpCall): Promise<EdgeOutcome> {
  const deadline = AbortSignal.timeout(call.timeoutMs);
  const signal = AbortSignal.any([deadline, call.signal]);
  try {
    const answered = await follow(call, signal);
    return answered instanceof Response ? await outcomeOf(answered, call) : answered;
  } catch {
    // The reason may name addresses that are nobody's business.
    if (deadline.aborted) return edgeEnd('timeout');
    if (call.signal.aborted) return edgeEnd('interrupted');
    return edgeFailure('NetworkError', 'the request could not be made, or its answer was cut');
  }
}

async function follow(call: HttpCall, signal: AbortSignal): Promise<Response | EdgeOutcome> {
  const { request, credentials, rules } = call;
  let { url } = request;
  for (let hop = 0; ; hop += 1) {
    const fault = addressFault(url, rules);
    if (fault !== undefined)
      return edgeFailure('AddressRefused', `the tool led to an address that is not ${fault}`);
    const isFirstOrigin = url.origin === request.url.origin;
    const response = await fetch(url.href, {
      method: request.method,
      headers: { ...request.headers, ...(isFirstOrigin ? credentials : {}) },
      body: request.body,
      redirect: 'manual',
      signal,
    });
    const location = isRedirect(response.status) ? response.headers.get('location') : null;
    if (location === null) return response;
    await response.body?.cancel();
    const next = URL.parse(location, url.href);
    // A request with a body is not sent again to wherever its answer says.
    if (request.method !== 'GET' || next === null || hop === MAX_HOPS) {
      return edgeFailure('RedirectRefused', `the tool was answered ${response.status} with another address`);
    }
    url = next;
  }
}

function isRedirect(status: number): boolean {
  return [301, 302, 303, 307, 308].includes(status);
}

async function outcomeOf(response: Response, { credentials }: HttpCall): Promise<EdgeOutcome> {
  const bytes = await readBounded(response.body, MAX_ANSWER_BYTES);
  if (bytes === undefined)
    return edgeFailure('AnswerTooLarge', `the answer is over ${MAX_ANSWER_BYTES} bytes`);
  const mime = response.headers.get('content-type')?.split(';')[0]?.trim().toLowerCase() ?? '';
  const content = contentOf(bytes, mime, credentials);
  if (response.status < FIRST_ERROR_STATUS) return { ...edgeEnd('succeeded'), ...content };
  const error = { name: 'HttpError', message: `the tool was answered ${response.status}`, traceback: '' };
  return { ...edgeEnd('failed'), ...content, error };
}

type Content = Pick<EdgeOutcome, 'text' | 'structured' | 'results'>;

function contentOf(bytes: Uint8Array, mime: string, credentials: Record<string, string>): Content {
  const text = decoded(bytes);
  if (text === undefined)
    return { text: '', structured: null, results: [{ mime: mime || BYTES, data: toBase64(bytes) }] };
  const hide = hiding(credentials);
  const shown = hide(text);
  const isJson = mime === 'application/json' || mime.endsWith('+json');
  const parsed = isJson ? parseStrictJson(shown, BOUNDS) : undefined;
  // What would not survive as data, such as an integer beyond 2^53, stays the text that it is.
  return parsed?.ok === true
    ? { text: '', structured: hiddenIn(parsed.value, hide), results: [] }
    : { text: shown, structured: null, results: [] };
}

const BYTES = 'application/octet-stream';

function decoded(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** Some services repeat what they were sent. */
function hiding(credentials: Record<string, string>): (text: string) => string {
  const secrets = Object.values(credentials)
    .flatMap((value) => [value, value.replace(/^\S+ /, '')])
    .filter((secret) => secret.length >= MIN_SECRET_CHARACTERS);
  return (text) => secrets.reduce((shown, secret) => shown.replaceAll(secret, '[credential]'), text);
}

/** JSON may write a secret with escapes, so it is looked for in what the text means too. */
function hiddenIn(value: unknown, hide: (text: string) => string): unknown {
  if (typeof value === 'string') return hide(value);
  if (Array.isArray(value)) return value.map((item) => hiddenIn(item, hide));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [hide(name), hiddenIn(one, hide)]));
}
