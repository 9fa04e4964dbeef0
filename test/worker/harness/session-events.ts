/** Reads the stream of what happens in a session step by step, by the front door. */
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { type SessionStreamEvent, SessionStreamEventSchema } from '../../../shared/event.ts';
import { request } from './api.ts';

export interface SeenEvent {
  id: string | undefined;
  event: SessionStreamEvent;
}

export class SessionEventReader {
  readonly #reader: ReadableStreamDefaultReader<{ id?: string | undefined; data: string }>;
  readonly seen: SeenEvent[] = [];

  private constructor(body: ReadableStream<Uint8Array>) {
    this.#reader = body
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(new EventSourceParserStream())
      .getReader();
  }

  static async open(sessionId: string, token: string, lastEventId?: string): Promise<SessionEventReader> {
    const response = await request('GET', `/v1/sessions/${sessionId}/events`, {
      token,
      ...(lastEventId === undefined ? {} : { headers: { 'Last-Event-ID': lastEventId } }),
    });
    if (response.status !== 200 || response.body === null) throw new Error(await response.text());
    return new SessionEventReader(response.body);
  }

  /** Undefined at the end. */
  async next(): Promise<SeenEvent | undefined> {
    const { value, done } = await this.#reader.read();
    if (done) return undefined;
    const seen = { id: value.id, event: SessionStreamEventSchema.parse(JSON.parse(value.data)) };
    this.seen.push(seen);
    return seen;
  }

  async until(type: SessionStreamEvent['type']): Promise<SeenEvent> {
    for (let seen = await this.next(); seen !== undefined; seen = await this.next()) {
      if (seen.event.type === type) return seen;
    }
    throw new Error(`the stream ended before ${type}`);
  }

  async toEnd(): Promise<SeenEvent[]> {
    while ((await this.next()) !== undefined);
    return this.seen;
  }

  cancel(): Promise<void> {
    return this.#reader.cancel();
  }
}

export function typesOf(seen: readonly SeenEvent[]): string[] {
  return seen.map(({ event }) => event.type);
}
