/**
 * `Mcp-Session-Id` of clients before 2026-07-28. It holds no state: it tells the clients of one subject apart, so that
 * a cancellation finds its own call. A tag binds it to the subject, and an id of another wakes nothing.
 */
import { toBase64Url, utf8 } from '../../shared/encoding.ts';
import { randomHandle } from '../../shared/ids.ts';
import type { Caller } from '../objects/caller.ts';

export const MCP_SESSION_HEADER = 'Mcp-Session-Id';

const PREFIX = 'mcp_';
const HANDLE_LENGTH = 22;
const TAG_BYTES = 12;
const FORM = /^mcp_[A-Za-z0-9_-]{38}$/;

export async function newMcpSessionId(tagKey: CryptoKey, caller: Caller): Promise<string> {
  const handle = randomHandle();
  return `${PREFIX}${handle}${await tagOf(tagKey, caller, handle)}`;
}

export async function isMcpSessionIdOf(tagKey: CryptoKey, caller: Caller, id: string): Promise<boolean> {
  if (!FORM.test(id)) return false;
  const handle = id.slice(PREFIX.length, PREFIX.length + HANDLE_LENGTH);
  const expected = utf8(await tagOf(tagKey, caller, handle));
  return crypto.subtle.timingSafeEqual(expected, utf8(id.slice(PREFIX.length + HANDLE_LENGTH)));
}

async function tagOf(tagKey: CryptoKey, { tenant, subject }: Caller, handle: string): Promise<string> {
  // A tenant's name has no line end, a subject may: it comes last.
  const mac = await crypto.subtle.sign('HMAC', tagKey, utf8(`mcp\n${tenant}\n${handle}\n${subject}`));
  return toBase64Url(new Uint8Array(mac).subarray(0, TAG_BYTES));
}
