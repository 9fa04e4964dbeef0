/**
 * The events of calls that the session object has no stream of: those that wait for an approval, and those that run at the edge.
 * One that is made in a sandbox goes on as the stream of its session.
 */
import { utf8 } from '../../shared/encoding.ts';
import {
  type EventCursor,
  type Execution,
  formatCursor,
  parseCursor,
  type StreamEvent,
} from '../../shared/execution.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { SSE_HEARTBEAT_MS } from '../../shared/limits.ts';
import { EVENT_STREAM_MEDIA_TYPE } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { approvalCalls, SAFE } from '../objects/object-calls.ts';
import { streamText } from '../objects/session/event-logs/stream-text.ts';
import type { AwaitedCall } from '../objects/session/port.ts';
import type { Exchange } from '../routing/route.ts';
import type { EdgeProgress } from '../tools/edge-execution.ts';
import type { OwnSession } from './own-session.ts';
import { streamEvents } from './session-stream.ts';

export interface EventsWanted {
  executionId: string;
  encoding: 'utf-8' | 'base64';
  lastEventId: string | null;
}

type Standing =
  | { at: 'session' }
  | { at: 'edge'; execution: Execution; progress: AwaitedCall['progress'] }
  | { at: 'approval'; execution: Execution };

/** Undefined where the caller has no such call. */
export async function callEvents(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  wanted: EventsWanted,
): Promise<Response | undefined> {
  const first = await standing(exchange, session, wanted.executionId);
  return first === undefined ? undefined : streamOf(eventsOf(exchange, session, { ...wanted, first }));
}

async function* eventsOf(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  { first, ...wanted }: EventsWanted & { first: Standing },
): AsyncGenerator<Uint8Array> {
  const { executionId } = wanted;
  const events = new CallEvents(wanted);
  yield utf8(`: ${executionId}\nid: ${formatCursor(events.cursor)}\n\n`);
  let told = '';
  let heard = 0;
  for (
    let at: Standing | undefined = first;
    at !== undefined;
    at = await changed(exchange, session, wanted, at)
  ) {
    if (at.at === 'session') {
      const stream = await streamEvents(session, { ...wanted, lastEventId: formatCursor(events.cursor) });
      if (stream.body !== null) yield* stream.body;
      return;
    }
    const { execution } = at;
    if (isTerminal(execution.status)) {
      yield utf8(events.ended(execution));
      return;
    }
    const text = at.at === 'edge' ? events.started(execution) : events.waiting(execution);
    const said = at.at === 'edge' && at.progress !== null && at.progress.at > heard ? at.progress : null;
    const news = `${text === told ? '' : text}${said === null ? '' : events.progress(withoutPlace(said))}`;
    yield utf8(news === '' ? ': \n\n' : news);
    told = text;
    heard = said?.at ?? heard;
  }
}

function withoutPlace({ progress, total, message }: EdgeProgress): EdgeProgress {
  return { progress, total, message };
}

/** Where the call stands now; undefined where there is none, or not one of the caller. */
async function standing(
  exchange: Exchange<'tenant'>,
  { sessionId, caller, call }: OwnSession,
  executionId: string,
): Promise<Standing | undefined> {
  const ran = await call((stub) => stub.toolOf(caller, executionId), SAFE);
  if (ran.ok) return { at: 'session' };
  const edge = await call((stub) => stub.waitCall(caller, executionId, 0), SAFE);
  if (edge.ok) return { at: 'edge', ...edge.value };
  if (edge.code !== 'not_found') unwrap(edge);
  const approvals = approvalCalls(exchange.env, caller.tenant);
  const waiting = await approvals((stub) => stub.find(caller, { sessionId, executionId }), SAFE);
  return waiting.ok ? { at: 'approval', execution: waiting.value } : undefined;
}

/** The same when it has changed, or when it is time for a heartbeat. */
async function changed(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  { executionId }: EventsWanted,
  { at }: Standing,
): Promise<Standing | undefined> {
  const { caller, sessionId } = session;
  if (at === 'edge') {
    const edge = await session.call((stub) => stub.waitCall(caller, executionId, SSE_HEARTBEAT_MS), SAFE);
    return edge.ok ? { at, ...edge.value } : undefined;
  }
  const approvals = approvalCalls(exchange.env, caller.tenant);
  const place = { sessionId, executionId };
  unwrap(await approvals((stub) => stub.settled(caller, place, SSE_HEARTBEAT_MS), SAFE));
  return standing(exchange, session, executionId);
}

/** What a call at the edge has to say, as the events of any other: what a reader has had already is left out. */
export class CallEvents {
  readonly cursor: EventCursor;
  readonly #encoding: EventsWanted['encoding'];
  #others = 0;

  constructor({ executionId, encoding, lastEventId }: EventsWanted) {
    const known = lastEventId === null ? undefined : parseCursor(lastEventId);
    this.cursor = known ?? { executionId, stdoutBytes: 0, stderrBytes: 0, otherEvents: 0 };
    this.#encoding = encoding;
  }

  /** Named anew to each reader: it says how the call stands. */
  waiting({ approval }: Execution): string {
    return approval === undefined ? '' : this.#event({ event: 'waiting', approval });
  }

  started({ execution_id, started_at }: Execution): string {
    this.#others = 0;
    return started_at === null ? '' : this.#other({ event: 'started', execution_id, started_at });
  }

  progress(progress: Omit<Extract<StreamEvent, { event: 'progress' }>, 'event'>): string {
    return this.#event({ event: 'progress', ...progress });
  }

  ended(execution: Execution): string {
    const bytes = utf8(execution.stdout);
    const offset = this.cursor.stdoutBytes;
    let text = this.started(execution);
    if (bytes.length > offset) {
      this.cursor.stdoutBytes = bytes.length;
      const written = streamText(bytes.subarray(offset), this.#encoding);
      text += this.#event({ event: 'stdout', offset, text: written, encoding: this.#encoding });
    }
    for (const { mime, data } of execution.results) text += this.#other({ event: 'result', mime, data });
    return text + this.#other({ event: 'end', execution: { ...execution, stdout: '', stderr: '' } });
  }

  #other(event: StreamEvent): string {
    this.#others += 1;
    if (this.#others <= this.cursor.otherEvents) return '';
    this.cursor.otherEvents = this.#others;
    return this.#event(event);
  }

  #event(event: StreamEvent): string {
    return `id: ${formatCursor(this.cursor)}\nevent: ${event.event}\ndata: ${JSON.stringify(event)}\n\n`;
  }
}

/** Read as it is taken; a reader that goes away ends the generator. */
export function streamOf(events: AsyncGenerator<Uint8Array>): Response {
  const body = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      const { value, done } = await events.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
    cancel: async () => {
      await events.return(undefined);
    },
  });
  return new Response(body, {
    headers: {
      'Content-Type': EVENT_STREAM_MEDIA_TYPE,
      'Cache-Control': 'no-store',
      'X-Accel-Buffering': 'no',
    },
  });
}
