/** What a session is to hear of a call that waits for an approval, or did. The ids are the same each time. */
import { toBase64Url, utf8 } from '../../../shared/encoding.ts';
import type { ApprovalFacts } from '../session/port.ts';
import type { ApprovalRow } from './store.ts';

const HANDLE_BYTES = 16;

type News = { eventId: string; facts: ApprovalFacts };

export async function approvalNews(row: ApprovalRow): Promise<News[]> {
  const news: News[] = [];
  const { executionId: execution_id, call, status, notedStatus } = row;
  const tool_name = call.tool.name;
  if (notedStatus === null) {
    const { subject: requested_by } = call.caller;
    const expires_at = new Date(row.expiresAtMs).toISOString();
    news.push({
      eventId: await eventIdOf(execution_id, 'waiting'),
      facts: { type: 'approval.waiting', data: { execution_id, tool_name, requested_by, expires_at } },
    });
  }
  if (status !== 'waiting') {
    news.push({
      eventId: await eventIdOf(execution_id, 'decided'),
      facts: { type: 'approval.decided', data: { execution_id, tool_name, status } },
    });
  }
  return news;
}

/** Of the end of a call that never came into its session. */
export function endEventId(executionId: string): Promise<string> {
  return eventIdOf(executionId, 'ended');
}

async function eventIdOf(executionId: string, what: string): Promise<string> {
  const hash = await crypto.subtle.digest('SHA-256', utf8(`${executionId} ${what}`));
  return `evt_${toBase64Url(new Uint8Array(hash).subarray(0, HANDLE_BYTES))}`;
}
