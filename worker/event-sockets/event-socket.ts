/**
 * A stream of events on a client's WebSocket: one text message an event. How much of what was sent still waits on the way
 * nobody tells, so a client says itself how many messages it took; of one that does not, the bytes are bounded in all.
 */
import * as z from 'zod';
import { ServerSentEventReader } from './server-sent-events.ts';

/** Of RFC 6455. */
export const EVENT_SOCKET_CLOSE = { normal: 1000, policy: 1008, restart: 1012, tryAgain: 1013 } as const;
/** Sent and not taken, of a client that says what it took. A message is never longer than an event. */
export const EVENT_SOCKET_WINDOW_BYTES = 1024 * 1024;
/** For a client that never says so. */
export const EVENT_SOCKET_UNTOLD_BYTES = 16 * 1024 * 1024;
const MAX_CLIENT_MESSAGE_CHARS = 256;

/** From the client: how many messages it has handled, in all. */
const TakenSchema = z.strictObject({ type: z.literal('taken'), messages: z.int().min(0) });

export class EventSocket {
  readonly #socket: WebSocket;
  readonly #events: ServerSentEventReader;
  readonly #isLast: (data: unknown) => boolean;
  /** Sizes of what was sent and not taken, oldest first. */
  #waiting: number[] = [];
  #waitingBytes = 0;
  #sentBytes = 0;
  #takenMessages = 0;
  #saysWhatItTook = false;
  #isOpen = true;
  #wake: (() => void) | undefined;

  constructor(socket: WebSocket, body: ReadableStream<Uint8Array>, isLast: (data: unknown) => boolean) {
    this.#socket = socket;
    this.#events = new ServerSentEventReader(body);
    this.#isLast = isLast;
    socket.addEventListener('message', ({ data }) => this.#receive(data));
    socket.addEventListener('close', () => this.#left());
    socket.addEventListener('error', () => this.#left());
  }

  /** Until the last event was sent, the stream broke, or the client left. */
  async run(): Promise<void> {
    try {
      let isOver = false;
      for (let event = await this.#events.next(); event !== undefined; event = await this.#events.next()) {
        const data: unknown = event.data === null ? null : JSON.parse(event.data);
        await this.#give(JSON.stringify({ id: event.id, data }));
        if (!this.#isOpen) return;
        isOver ||= data !== null && this.#isLast(data);
      }
      if (isOver) this.#end(EVENT_SOCKET_CLOSE.normal, 'end');
      else this.#end(EVENT_SOCKET_CLOSE.restart, 'the stream was cut; come back with the last id');
    } catch {
      this.#end(EVENT_SOCKET_CLOSE.restart, 'the stream was cut; come back with the last id');
    }
  }

  async #give(message: string): Promise<void> {
    // Characters of our JSON are bytes or fewer: near enough for a bound.
    while (
      this.#isOpen &&
      this.#saysWhatItTook &&
      this.#waiting.length > 0 &&
      this.#waitingBytes + message.length > EVENT_SOCKET_WINDOW_BYTES
    ) {
      await this.#taken();
    }
    if (!this.#isOpen) return;
    this.#sentBytes += message.length;
    if (!this.#saysWhatItTook && this.#sentBytes > EVENT_SOCKET_UNTOLD_BYTES) {
      this.#end(EVENT_SOCKET_CLOSE.tryAgain, 'events were not acknowledged');
      return;
    }
    this.#waiting.push(message.length);
    this.#waitingBytes += message.length;
    try {
      this.#socket.send(message);
    } catch {
      this.#left();
    }
  }

  async #taken(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    await promise;
    this.#wake = undefined;
  }

  #receive(data: unknown): void {
    if (!this.#isOpen) return;
    const taken = typeof data === 'string' ? takenIn(data) : undefined;
    const isKnown = taken !== undefined && taken <= this.#takenMessages + this.#waiting.length;
    if (!isKnown) {
      this.#end(EVENT_SOCKET_CLOSE.policy, '{"type": "taken", "messages": n} was expected');
      return;
    }
    this.#saysWhatItTook = true;
    const fresh = Math.max(0, taken - this.#takenMessages);
    this.#takenMessages += fresh;
    for (const size of this.#waiting.splice(0, fresh)) this.#waitingBytes -= size;
    this.#wake?.();
  }

  #end(code: number, reason: string): void {
    if (!this.#isOpen) return;
    try {
      this.#socket.close(code, reason);
    } catch {
      // Already closed.
    }
    this.#left();
  }

  #left(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#wake?.();
    this.#events.cancel();
  }
}

function takenIn(text: string): number | undefined {
  if (text.length > MAX_CLIENT_MESSAGE_CHARS) return undefined;
  try {
    return TakenSchema.safeParse(JSON.parse(text)).data?.messages;
  } catch {
    return undefined;
  }
}
