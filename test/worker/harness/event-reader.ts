/** Reads an event stream of a session object step by step. */
import { type StreamEvent, StreamEventSchema } from '../../../shared/execution.ts';
import type { ExecuteInput } from '../../../worker/objects/session/port.ts';
import { caller, type TestSession } from './sessions.ts';

export interface ReadEvent {
  id: string;
  data: StreamEvent;
}

export class EventReader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  #text = '';
  #done = false;
  readonly events: ReadEvent[] = [];
  comments = 0;
  lastId = '';

  constructor(response: Response) {
    if (response.status !== 200 || response.body === null) throw new Error(`no stream: ${response.status}`);
    this.#reader = response.body.getReader();
  }

  /** Reads until an event fulfils the condition, or to the end. */
  async until(condition: (event: ReadEvent) => boolean): Promise<ReadEvent> {
    for (;;) {
      const event = await this.next();
      if (event === undefined) throw new Error('the stream ended before the event');
      if (condition(event)) return event;
    }
  }

  async next(): Promise<ReadEvent | undefined> {
    for (;;) {
      const at = this.#text.indexOf('\n\n');
      if (at >= 0) {
        const block = this.#text.slice(0, at);
        this.#text = this.#text.slice(at + 2);
        const event = this.#block(block);
        if (event !== undefined) return event;
        continue;
      }
      if (this.#done) return undefined;
      const { value, done } = await this.#reader.read();
      this.#done = done;
      if (value !== undefined) this.#text += this.#decoder.decode(value, { stream: true });
    }
  }

  #block(block: string): ReadEvent | undefined {
    let data: string | undefined;
    for (const line of block.split('\n')) {
      if (line.startsWith(':')) this.comments += 1;
      else if (line.startsWith('id: ')) this.lastId = line.slice(4);
      else if (line.startsWith('data: ')) data = line.slice(6);
    }
    if (data === undefined) return undefined;
    const event = { id: this.lastId, data: StreamEventSchema.parse(JSON.parse(data)) };
    this.events.push(event);
    return event;
  }

  async toEnd(): Promise<ReadEvent[]> {
    while ((await this.next()) !== undefined);
    return this.events;
  }

  async cancel(): Promise<void> {
    await this.#reader.cancel();
  }
}

export async function executeStream(session: TestSession, input: ExecuteInput): Promise<EventReader> {
  const response = await session.stub.fetch(
    new Request('https://session/execute', { method: 'POST', body: JSON.stringify(input) }),
  );
  return new EventReader(response);
}

export async function events(
  session: TestSession,
  executionId: string,
  options: { lastEventId?: string; encoding?: string; caller?: object } = {},
): Promise<Response> {
  const query = options.encoding === undefined ? '' : `?encoding=${options.encoding}`;
  return session.stub.fetch(
    new Request(`https://session/executions/${executionId}/events${query}`, {
      headers: {
        'sandgate-caller': JSON.stringify(options.caller ?? caller),
        ...(options.lastEventId === undefined ? {} : { 'last-event-id': options.lastEventId }),
      },
    }),
  );
}

/** The bytes of a stream as its events give them, with the holes they name. */
export function assembled(read: readonly ReadEvent[], stream: 'stdout' | 'stderr'): string {
  let text = '';
  for (const { data } of read) {
    if (data.event === stream) text += data.encoding === 'base64' ? atob(data.text) : data.text;
    if (data.event === 'gap' && data.stream === stream) text += `<${data.from}-${data.to}>`;
  }
  return text;
}
