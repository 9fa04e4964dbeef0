/** What binds an id that clients hold to who it was made for: an id of another is refused before any object wakes. */
import { toBase64Url, utf8 } from '../../shared/encoding.ts';
import { constantTimeEqual } from '../../shared/ids.ts';
import type { Caller } from '../objects/caller.ts';

const TAG_BYTES = 12;
export const TAG_LENGTH = 16;

export interface Tagged {
  kind: 'mcp' | 'mcp-event' | 'task';
  /** What the id says; without a line end. */
  text: string;
}

export async function callerTag(
  tagKey: CryptoKey,
  { tenant, subject }: Caller,
  { kind, text }: Tagged,
): Promise<string> {
  // A tenant's name has no line end, a subject may: it comes last.
  const mac = await crypto.subtle.sign('HMAC', tagKey, utf8(`${kind}\n${tenant}\n${text}\n${subject}`));
  return toBase64Url(new Uint8Array(mac).subarray(0, TAG_BYTES));
}

export async function hasCallerTag(
  tagKey: CryptoKey,
  caller: Caller,
  { tag, ...tagged }: Tagged & { tag: string },
): Promise<boolean> {
  return constantTimeEqual(await callerTag(tagKey, caller, tagged), tag);
}
