/** What an execution writes, and what is said of the calls that it makes, as the progress of the call that attends it. */
import type { StreamEvent } from '../../shared/execution.ts';
import type { OwnSession } from '../calls/own-session.ts';
import { streamEvents } from '../calls/session-stream.ts';
import { streamEventsOf } from './event-source.ts';
import { type OnProgress, OutputProgress } from './progress.ts';

export interface FollowedOutput {
  /** Resolves when nothing more comes. A stream that is cut costs the progress and nothing else. */
  ended: Promise<void>;
  /** Reports at once what waits for its turn. */
  flush: () => void;
  close: () => void;
}

/** Where a reader of before stopped: how far in the events, and behind how many characters. */
export interface OutputPlace {
  cursor: string;
  characters: number;
}

export function followOutput(
  session: OwnSession,
  executionId: string,
  onProgress: OnProgress,
  after?: OutputPlace,
): FollowedOutput {
  const progress = new OutputProgress(onProgress, after?.characters);
  const left = new AbortController();
  const wanted = { executionId, encoding: 'utf-8' as const, lastEventId: after?.cursor ?? null };
  const ended = follow(session, wanted, { progress, signal: left.signal }).catch(() => undefined);
  return {
    ended,
    flush: () => progress.flush(),
    close: () => {
      progress.close();
      left.abort();
    },
  };
}

async function follow(
  session: OwnSession,
  wanted: Parameters<typeof streamEvents>[1],
  { progress, signal }: { progress: OutputProgress; signal: AbortSignal },
): Promise<void> {
  const opened = await streamEvents(session, wanted);
  const body = opened.body ?? new ReadableStream<Uint8Array>();
  const events = streamEventsOf(body.pipeThrough(new TransformStream(), { signal }));
  for await (const { cursor, event } of events) {
    if (signal.aborted) return;
    const text = textOf(event);
    if (text !== '') progress.took(text, cursor);
  }
}

function textOf(event: StreamEvent): string {
  if (event.event === 'stdout' || event.event === 'stderr') return event.text;
  if (event.event !== 'progress') return '';
  const { tool_name = '', progress, total, message } = event;
  const share = total === null ? String(progress) : `${progress}/${total}`;
  return `[${tool_name} ${share}]${message === null ? '' : ` ${message}`}\n`;
}
