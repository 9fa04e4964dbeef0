/**
 * `Mcp-Session-Id` of clients before 2026-07-28. It holds no state: it tells the clients of one subject apart, so that
 * a cancellation finds its own call. A tag binds it to the subject, and an id of another wakes nothing.
 */
import { randomHandle } from '../../shared/ids.ts';
import type { Caller } from '../objects/caller.ts';
import { callerTag, hasCallerTag } from './caller-tag.ts';

export const MCP_SESSION_HEADER = 'Mcp-Session-Id';

const PREFIX = 'mcp_';
const HANDLE_LENGTH = 22;
const FORM = /^mcp_[A-Za-z0-9_-]{38}$/;

export async function newMcpSessionId(tagKey: CryptoKey, caller: Caller): Promise<string> {
  const handle = randomHandle();
  return `${PREFIX}${handle}${await callerTag(tagKey, caller, { kind: 'mcp', text: handle })}`;
}

export async function isMcpSessionIdOf(tagKey: CryptoKey, caller: Caller, id: string): Promise<boolean> {
  if (!FORM.test(id)) return false;
  const text = id.slice(PREFIX.length, PREFIX.length + HANDLE_LENGTH);
  return hasCallerTag(tagKey, caller, { kind: 'mcp', text, tag: id.slice(PREFIX.length + HANDLE_LENGTH) });
}
