/** The stream of a call that somebody came back for: what is left of its progress, then its answer, once. */
import type { CallToolResult } from '@modelcontextprotocol/server';
import { utf8 } from '../../shared/encoding.ts';
import { EVENT_STREAM_MEDIA_TYPE } from '../middleware/body.ts';
import type { Exchange } from '../routing/route.ts';
import type { CallCancellation } from './cancellation.ts';
import { eventIdOf, type StreamPoint } from './event-id.ts';
import { KEEP_ALIVE_MS, primingEvent } from './event-lines.ts';
import type { Progress } from './progress.ts';
import { type ResumedCall, resumedAnswer, stopResumed } from './resumed-answer.ts';

export interface ResumedStreamInput extends ResumedCall {
  cancellation: CallCancellation;
  isPrimed: boolean;
}

export function resumedStream(exchange: Exchange<'tenant'>, input: ResumedStreamInput): Response {
  const stream = new ResumedStream(exchange, input);
  return new Response(stream.body, {
    headers: {
      'Content-Type': EVENT_STREAM_MEDIA_TYPE,
      'Cache-Control': 'no-cache, no-transform',
      'X-Accel-Buffering': 'no',
    },
  });
}

class ResumedStream {
  readonly body: ReadableStream<Uint8Array>;
  readonly #exchange: Exchange<'tenant'>;
  readonly #input: ResumedStreamInput;
  /** Its reader has left. */
  readonly #left = new AbortController();
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  #point: StreamPoint;
  /** Signing takes a while; events stay in their order. */
  #writing: Promise<void> = Promise.resolve();

  constructor(exchange: Exchange<'tenant'>, input: ResumedStreamInput) {
    this.#exchange = exchange;
    this.#input = input;
    this.#point = input.point;
    this.body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#controller = controller;
        exchange.waitUntil(this.#run());
      },
      cancel: () => this.#left.abort(),
    });
  }

  async #run(): Promise<void> {
    const { cancellation, isPrimed, point } = this.#input;
    const { requestId, callId, progressToken } = point;
    if (isPrimed) this.#write(point, (id) => (id === undefined ? '' : primingEvent(id)));
    const keepAlive = setInterval(() => this.#enqueue(': keepalive\n\n'), KEEP_ALIVE_MS);
    const call = cancellation.enter(requestId, callId);
    const stop = () => this.#exchange.waitUntil(stopResumed(this.#input).catch(() => undefined));
    call.signal.addEventListener('abort', stop, { once: true });
    const left = once(this.#left.signal);
    try {
      const onProgress = progressToken === null ? undefined : this.#progressed.bind(this);
      const answered = resumedAnswer(this.#input, { signal: this.#left.signal, onProgress });
      const result = await Promise.race([answered, left]);
      if (result !== undefined && !(await cancellation.wasCancelled(callId))) this.#answered(result);
      await this.#writing;
      this.#close();
    } catch (error: unknown) {
      // Its reader comes back.
      this.#controller?.error(error);
    } finally {
      clearInterval(keepAlive);
      await call.leave();
    }
  }

  #progressed(progress: Progress, cursor?: string): void {
    const { characters, progressToken } = this.#point;
    // What the reader has had.
    if (progress.progress <= characters || progressToken === null) return;
    this.#point = { ...this.#point, characters: progress.progress, cursor: cursor ?? this.#point.cursor };
    this.#message(this.#point, {
      method: 'notifications/progress',
      params: { progressToken, ...progress },
    });
  }

  #answered(result: CallToolResult): void {
    this.#message({ ...this.#point, isLast: true }, { id: this.#point.requestId, result });
  }

  #message(point: StreamPoint, message: object): void {
    const data = JSON.stringify({ jsonrpc: '2.0', ...message });
    this.#write(point, (id) => {
      return `event: message\n${id === undefined ? '' : `id: ${id}\n`}data: ${data}\n\n`;
    });
  }

  #write(point: StreamPoint, textOf: (id: string | undefined) => string): void {
    const { configuration, principal } = this.#exchange;
    const { tenant, subject } = principal;
    this.#writing = this.#writing.then(async () => {
      const id = await eventIdOf(configuration.tagKey, { tenant, subject }, point);
      this.#enqueue(textOf(id));
    });
  }

  #enqueue(text: string): void {
    if (!this.#left.signal.aborted) this.#controller?.enqueue(utf8(text));
  }

  #close(): void {
    if (!this.#left.signal.aborted) this.#controller?.close();
  }
}

function once(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(undefined), { once: true });
  });
}
