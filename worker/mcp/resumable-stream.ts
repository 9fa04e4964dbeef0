/** The stream of one call to a client before 2026-07-28, with an id at each event from which the client can go on. */
import { utf8 } from '../../shared/encoding.ts';
import { formatCursor } from '../../shared/execution.ts';
import type { Caller } from '../objects/caller.ts';
import type { RequestId } from './cancellation.ts';
import { eventIdOf, type StreamPoint } from './event-id.ts';
import { primingEvent } from './event-lines.ts';
import type { Progress } from './progress.ts';
import type { TakenCall } from './taken-call.ts';

export interface ResumableStreamOptions {
  tagKey: CryptoKey;
  caller: Caller;
  mcpSessionId: string | null;
  isPrimed: boolean;
}

/** What the protocol's server is asked, as it has it. */
export interface AskedCall {
  requestId: RequestId;
  progressToken: RequestId | undefined;
  callId: string;
}

export class ResumableStream {
  readonly #options: ResumableStreamOptions;
  readonly #decoder = new TextDecoder();
  /** Of progress that the protocol's server has and this stream has not seen yet, in its order. */
  readonly #ahead: StreamPoint[] = [];
  #point: StreamPoint | undefined;
  #controller: TransformStreamDefaultController<Uint8Array> | undefined;
  #unfinished = '';
  /** Signing takes a while; events stay in their order. */
  #writing: Promise<void> = Promise.resolve();

  constructor(options: ResumableStreamOptions) {
    this.#options = options;
  }

  taken(call: TakenCall, { requestId, progressToken, callId }: AskedCall): void {
    const { executionId } = call;
    const point = {
      call,
      requestId,
      progressToken: progressToken ?? null,
      callId,
      mcpSessionId: this.#options.mcpSessionId,
      takenAtMs: Date.now(),
      cursor: formatCursor({ executionId, stdoutBytes: 0, stderrBytes: 0, otherEvents: 0 }),
      characters: 0,
      isLast: false,
    };
    this.#point = point;
    if (!this.#options.isPrimed) return;
    void this.#write(async () => {
      const id = await this.#idOf(point);
      return id === undefined ? '' : primingEvent(id);
    });
  }

  /** Before its message is given to the protocol's server. */
  progressed({ progress }: Progress, cursor: string | undefined): void {
    if (this.#point === undefined) return;
    this.#point = { ...this.#point, characters: progress, cursor: cursor ?? this.#point.cursor };
    this.#ahead.push(this.#point);
  }

  /** The answer of the protocol's server, with ids. */
  with(response: Response): Response {
    if (response.body === null) return response;
    const ids = new TransformStream<Uint8Array, Uint8Array>({
      start: (controller) => {
        this.#controller = controller;
      },
      transform: (chunk) => this.#took(chunk),
      flush: async () => this.#writing,
    });
    return new Response(response.body.pipeThrough(ids), response);
  }

  async #took(chunk: Uint8Array): Promise<void> {
    const blocks = `${this.#unfinished}${this.#decoder.decode(chunk, { stream: true })}`.split('\n\n');
    this.#unfinished = blocks.pop() ?? '';
    for (const block of blocks) await this.#write(() => this.#withId(`${block}\n\n`));
  }

  async #withId(event: string): Promise<string> {
    const isComment = event.startsWith(':');
    if (this.#point === undefined || isComment) return event;
    // Progress comes in the order in which it was reported, and behind it the answer.
    const point = this.#ahead.shift() ?? { ...this.#point, isLast: true };
    const id = await this.#idOf(point);
    return id === undefined ? event : `id: ${id}\n${event}`;
  }

  #idOf(point: StreamPoint): Promise<string | undefined> {
    const { tagKey, caller } = this.#options;
    return eventIdOf(tagKey, caller, point);
  }

  #write(textOf: () => Promise<string>): Promise<void> {
    this.#writing = this.#writing.then(async () => {
      const text = await textOf();
      try {
        if (text !== '') this.#controller?.enqueue(utf8(text));
      } catch {
        // Its reader is gone: whoever comes back has a stream of their own.
      }
    });
    return this.#writing;
  }
}
