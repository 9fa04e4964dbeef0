/** What is asked of a host about a background process, and how its answers read. */
import * as z from 'zod';
import { failure } from '../../shared/errors.ts';
import { type LogEvent, LogEventSchema, type ProgramRequest } from '../../shared/program.ts';
import { Refusal } from '../middleware/refusal.ts';
import type { OwnSession } from './own-session.ts';
import { readTransfer } from './session-transfer.ts';

export async function askProcess<Answer>(
  session: OwnSession,
  schema: z.ZodType<Answer>,
  request: ProgramRequest,
): Promise<Answer> {
  const { body } = await readTransfer(session, request);
  const answer = schema.safeParse(await new Response(body).json().catch(() => undefined));
  if (!answer.success) throw new Refusal(failure('transfer_failed', 'the answer of the host cannot be read'));
  return answer.data;
}

export const LogsSchema = z.object({ events: z.array(LogEventSchema), next_after: z.int() });

/** What it wrote up to now. */
export async function processLogs(
  session: OwnSession,
  about: { process_id: string; after: number | null; stream: 'stdout' | 'stderr' | null },
): Promise<z.infer<typeof LogsSchema>> {
  const { body } = await readTransfer(session, { operation: 'process_logs', ...about, follow: false });
  const lines = (await new Response(body).text()).split('\n').filter((line) => line !== '');
  const events = lines.map((line): LogEvent => LogEventSchema.parse(JSON.parse(line)));
  const ends = events.map((event) => ('end' in event ? event.end : 'to' in event ? event.to : 0));
  return { events, next_after: Math.max(about.after ?? 0, ...ends) };
}
