/** What an execution writes, and what is said of the calls that it makes, as the progress of the call that attends it. */
import type { StreamEvent } from '../../shared/execution.ts';
import type { OwnSession } from '../routes/own-session.ts';
import { streamEvents } from '../routes/session-stream.ts';
import { streamEventsOf } from './event-source.ts';
import { OutputProgress, type Progress } from './progress.ts';

export interface FollowedOutput {
  /** Resolves when nothing more comes. A stream that is cut costs the progress and nothing else. */
  ended: Promise<void>;
  close: () => void;
}

export function followOutput(
  session: OwnSession,
  executionId: string,
  onProgress: (progress: Progress) => void,
): FollowedOutput {
  const progress = new OutputProgress(onProgress);
  const left = new AbortController();
  const ended = follow(session, executionId, { progress, signal: left.signal }).catch(() => undefined);
  return {
    ended,
    close: () => {
      progress.close();
      left.abort();
    },
  };
}

async function follow(
  session: OwnSession,
  executionId: string,
  { progress, signal }: { progress: OutputProgress; signal: AbortSignal },
): Promise<void> {
  const opened = await streamEvents(session, { executionId, encoding: 'utf-8', lastEventId: null });
  const body = opened.body ?? new ReadableStream<Uint8Array>();
  const events = streamEventsOf(body.pipeThrough(new TransformStream(), { signal }));
  for await (const event of events) {
    if (signal.aborted) return;
    const text = textOf(event);
    if (text !== '') progress.took(text);
  }
}

function textOf(event: StreamEvent): string {
  if (event.event === 'stdout' || event.event === 'stderr') return event.text;
  if (event.event !== 'progress') return '';
  const { tool_name = '', progress, total, message } = event;
  const share = total === null ? String(progress) : `${progress}/${total}`;
  return `[${tool_name} ${share}]${message === null ? '' : ` ${message}`}\n`;
}
