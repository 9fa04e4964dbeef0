/** The events of one execution as they come over SSE. */
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import {
  type EventCursor,
  type Execution,
  parseCursor,
  type StreamEvent,
  StreamEventSchema,
} from '../../shared/execution.ts';

export interface SeenEvent {
  id: string;
  cursor: EventCursor;
  event: StreamEvent;
  /** When it arrived, on the monotonic clock. */
  atMs: number;
}

export interface Collected {
  events: SeenEvent[];
  stdout: string;
  stderr: string;
  stdoutBytes: Uint8Array;
  stderrBytes: Uint8Array;
  gaps: Extract<StreamEvent, { event: 'gap' }>[];
  /** `undefined` when the stream stopped before its last event. */
  end: Execution | undefined;
}

export class EventStream implements AsyncIterable<SeenEvent> {
  readonly headers: Headers;
  /** Arrival times of every byte group, comments included: what an idle timer on the way would see. */
  readonly activityMs: number[] = [];
  comments = 0;
  readonly #response: Response;
  readonly #abort: AbortController;

  constructor(response: Response, abort: AbortController) {
    this.headers = response.headers;
    this.#response = response;
    this.#abort = abort;
  }

  /** Drops the connection as a client does that goes away. */
  cut(): void {
    this.#abort.abort();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<SeenEvent> {
    const seen: SeenEvent[] = [];
    const parser = createParser({
      onEvent: (message) => seen.push(parseMessage(message)),
      onComment: () => {
        this.comments += 1;
      },
      onError: (error) => {
        throw error;
      },
    });
    const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
    this.activityMs.push(performance.now());
    for await (const chunk of this.#response.body ?? []) {
      this.activityMs.push(performance.now());
      parser.feed(decoder.decode(chunk, { stream: true }));
      yield* seen.splice(0);
    }
  }

  /** Takes events until `enough` says so, then drops the connection; without it, until the stream ends. */
  async collect(enough: (seen: SeenEvent) => boolean = () => false): Promise<Collected> {
    const events: SeenEvent[] = [];
    for await (const seen of this) {
      events.push(seen);
      if (enough(seen)) break;
    }
    this.cut();
    return collected(events);
  }

  /** Takes all events; `act` runs once, as soon as the program has printed `text`. */
  async collectActingOn(text: string, act: () => Promise<void>): Promise<Collected> {
    const events: SeenEvent[] = [];
    let printed = '';
    let acting: Promise<void> | undefined;
    for await (const seen of this) {
      events.push(seen);
      if (seen.event.event === 'stdout') printed += seen.event.text;
      if (printed.includes(text)) acting ??= act();
    }
    if (acting === undefined) throw new Error(`the program never printed ${text}`);
    await acting;
    return collected(events);
  }
}

function parseMessage(message: EventSourceMessage): SeenEvent {
  const atMs = performance.now();
  const cursor = message.id === undefined ? undefined : parseCursor(message.id);
  if (message.id === undefined || cursor === undefined) {
    throw new Error(`every event has a cursor as its id: ${JSON.stringify(message).slice(0, 200)}`);
  }
  const data: unknown = JSON.parse(message.data);
  if (typeof data !== 'object' || data === null) throw new Error('the data of an event is an object');
  const event = StreamEventSchema.parse({ ...data, event: message.event });
  return { id: message.id, cursor, event, atMs };
}

/** Joins events, and fails where the byte offsets of a stream do not follow each other. */
export function collected(events: readonly SeenEvent[]): Collected {
  const bytes = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  const text = { stdout: '', stderr: '' };
  const next: { stdout?: number; stderr?: number } = {};
  const gaps: Collected['gaps'] = [];
  let end: Execution | undefined;
  for (const { event } of events) {
    if (end !== undefined) throw new Error(`an event after the end: ${event.event}`);
    if (event.event === 'stdout' || event.event === 'stderr') {
      const expected = next[event.event];
      if (expected !== undefined && expected !== event.offset) {
        throw new Error(`${event.event} jumps from byte ${expected} to ${event.offset}`);
      }
      const chunk = Buffer.from(event.text, event.encoding === 'base64' ? 'base64' : 'utf8');
      text[event.event] += event.text;
      bytes[event.event].push(chunk);
      // Bytes that are not UTF-8 become longer as text, so only faithful text says where the next one starts.
      next[event.event] = event.text.includes('\ufffd') ? undefined : event.offset + chunk.length;
    } else if (event.event === 'gap') {
      gaps.push(event);
      next[event.stream] = event.to;
    } else if (event.event === 'end') {
      end = event.execution;
    }
  }
  return {
    events: [...events],
    ...text,
    stdoutBytes: Buffer.concat(bytes.stdout),
    stderrBytes: Buffer.concat(bytes.stderr),
    gaps,
    end,
  };
}
