/** A manifest by its address: nothing new where its ETag says so. */

import type * as z from 'zod';
import type { ManifestSourceSchema } from '../../shared/tool-source.ts';
import { MAX_SOURCE_BYTES } from '../../shared/tool-source.ts';
import { readBounded } from '../identity/read-bounded.ts';
import { isInToolSchema } from '../json/exact-integers.ts';
import { parseStrictJson } from '../json/strict-json.ts';
import type { AddressRules } from '../tools/http/address.ts';
import { AnswerTooLarge, boundedFetch } from '../tools/http/bounded-fetch.ts';
import { ServerFault } from './server-fault.ts';

const MAX_HOPS = 3;
const TIMEOUT_MS = 20_000;
const MAX_ETAG_CHARACTERS = 1_024;
const BOUNDS = { maxDepth: 64, maxValues: 1_000_000 };

export interface ManifestRequest {
  url: string;
  headers: z.infer<typeof ManifestSourceSchema>['headers'];
  /** Go to the host of the address only. */
  credentials: Record<string, string>;
  etag: string | null;
  rules: AddressRules;
}

export type FetchedManifest = { document: unknown; etag: string | null } | 'unchanged';

export async function fetchManifest(request: ManifestRequest): Promise<FetchedManifest> {
  const response = await follow(request);
  if (response.status === 304 && request.etag !== null) {
    await response.body?.cancel();
    return 'unchanged';
  }
  if (response.status !== 200) {
    await response.body?.cancel();
    throw new ServerFault(`the address was answered ${response.status}`);
  }
  const bytes = await readBounded(response.body, MAX_SOURCE_BYTES);
  if (bytes === undefined) throw new AnswerTooLarge(`the answer is over ${MAX_SOURCE_BYTES} bytes`);
  const etag = response.headers.get('etag');
  return {
    document: parseManifest(bytes),
    etag: etag !== null && etag.length <= MAX_ETAG_CHARACTERS ? etag : null,
  };
}

/** Strictly: two fields of one name, or an integer outside of schemas that would be rounded, make it no manifest. */
export function parseManifest(bytes: Uint8Array): unknown {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch {
    throw new ServerFault('the manifest is not text in UTF-8');
  }
  const parsed = parseStrictJson(text, BOUNDS, isInToolSchema);
  if (!parsed.ok) throw new ServerFault('the manifest is not JSON that can be read without loss');
  return parsed.value;
}

async function follow({
  url: address,
  headers,
  credentials,
  etag,
  rules,
}: ManifestRequest): Promise<Response> {
  const fetchBounded = boundedFetch(rules, MAX_SOURCE_BYTES);
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const first = new URL(address);
  let url = first;
  for (let hop = 0; ; hop += 1) {
    const response = await fetchBounded(url, {
      headers: {
        accept: 'application/json',
        'user-agent': 'sandgate',
        ...headers,
        ...(url.origin === first.origin ? credentials : {}),
        ...(etag === null ? {} : { 'if-none-match': etag }),
      },
      signal,
    });
    const location = [301, 302, 303, 307, 308].includes(response.status)
      ? response.headers.get('location')
      : null;
    if (location === null) return response;
    await response.body?.cancel();
    const next = URL.parse(location, url.href);
    if (next === null || hop === MAX_HOPS) throw new ServerFault('the address leads on and on');
    url = next;
  }
}
