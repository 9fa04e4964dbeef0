/** A call at the edge as a stream of events: that it began, what the other side says of it, its end. */
import { utf8 } from '../../shared/encoding.ts';
import { type Execution, formatCursor } from '../../shared/execution.ts';
import { SSE_HEARTBEAT_MS } from '../../shared/limits.ts';
import type { EdgeProgress } from '../tools/edge-execution.ts';
import { CallEvents, streamOf } from './call-events.ts';

/** Of what is said faster than it is read, the newest. */
export class ProgressFeed {
  #newest: EdgeProgress | undefined;
  #wake: () => void = () => undefined;

  readonly report = (progress: EdgeProgress): void => {
    this.#newest = progress;
    this.#wake();
  };

  /** Undefined where nothing is said for that time. */
  async next(waitMs: number): Promise<EdgeProgress | undefined> {
    if (this.#newest === undefined) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      const timer = setTimeout(resolve, waitMs);
      await promise;
      clearTimeout(timer);
    }
    return this.take();
  }

  /** What was said and not given yet. */
  take(): EdgeProgress | undefined {
    const newest = this.#newest;
    this.#newest = undefined;
    return newest;
  }

  /** Whoever waits need not wait longer. */
  close(): void {
    this.#wake();
  }
}

/** A reader that goes away stops nothing. An `ended` that gives nothing cuts the stream. */
export function edgeStream(
  begun: Execution,
  { ended, feed }: { ended: Promise<Execution | undefined>; feed: ProgressFeed },
): Response {
  return streamOf(eventsOf(begun, { ended, feed }));
}

async function* eventsOf(
  begun: Execution,
  { ended, feed }: { ended: Promise<Execution | undefined>; feed: ProgressFeed },
): AsyncGenerator<Uint8Array> {
  const executionId = begun.execution_id;
  const events = new CallEvents({ executionId, encoding: 'utf-8', lastEventId: null });
  yield utf8(`: ${executionId}\nid: ${formatCursor(events.cursor)}\n\n${events.started(begun)}`);
  const call: { isOver: boolean; execution: Execution | undefined } = { isOver: false, execution: undefined };
  const over = ended.then((execution) => {
    Object.assign(call, { isOver: true, execution });
    feed.close();
  });
  while (!call.isOver) {
    const progress = await feed.next(SSE_HEARTBEAT_MS);
    if (progress !== undefined) yield utf8(events.progress(progress));
    else if (!call.isOver) yield utf8(': \n\n');
  }
  await over;
  const last = feed.take();
  if (last !== undefined) yield utf8(events.progress(last));
  if (call.execution !== undefined) yield utf8(events.ended(call.execution));
}
