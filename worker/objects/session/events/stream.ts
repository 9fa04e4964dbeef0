/** The events of a session as server-sent events: from a number on, each once, until the session is gone. */
import { utf8 } from '../../../../shared/encoding.ts';
import { type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { SessionStreamEvent } from '../../../../shared/event.ts';
import { SSE_HEARTBEAT_MS } from '../../../../shared/limits.ts';
import type { SessionEvents } from './events.ts';

const MAX_EVENTS_AT_ONCE = 50;
/** Streams of one session at once. */
const MAX_READERS = 16;

export class SessionEventStreams {
  readonly #events: SessionEvents;
  readonly #isGone: () => boolean;
  #readers = 0;

  constructor(events: SessionEvents, isGone: () => boolean) {
    this.#events = events;
    this.#isGone = isGone;
  }

  open(lastEventId: string | null): Outcome<Response> {
    const after = lastEventId === null ? 0 : numberOf(lastEventId);
    if (after === undefined || after > this.#events.last) return notAPlace();
    if (this.#readers >= MAX_READERS) {
      return failure('quota_exceeded', `${MAX_READERS} streams of the session's events are being read`, {
        retry_after_s: 1,
      });
    }
    return success(new Response(this.#body(after)));
  }

  #body(after: number): ReadableStream<Uint8Array> {
    let position = after;
    let isOpen = true;
    let waiting: PromiseWithResolvers<void> | undefined;
    this.#readers += 1;
    const close = () => {
      if (isOpen) this.#readers -= 1;
      isOpen = false;
      waiting?.resolve();
    };
    return new ReadableStream<Uint8Array>({
      // Names the place before the first event, so that a stream cut early can be taken up again.
      start: (controller) => controller.enqueue(utf8(`id: ${position}\n\n`)),
      pull: async (controller) => {
        waiting = Promise.withResolvers<void>();
        const next = this.#next(position) ?? (await this.#wait(position, waiting));
        if (!isOpen) return;
        if (next !== undefined) {
          position = next.position;
          controller.enqueue(utf8(next.text));
          return;
        }
        close();
        controller.close();
      },
      cancel: close,
    });
  }

  /** The next events, a heartbeat where there is none for a while or the reader has left, nothing where none will come. */
  async #wait(
    position: number,
    { promise, resolve }: PromiseWithResolvers<void>,
  ): Promise<{ position: number; text: string } | undefined> {
    if (this.#isGone()) return undefined;
    const forget = this.#events.onNext(resolve);
    const timer = setTimeout(resolve, SSE_HEARTBEAT_MS);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      forget();
    }
    return this.#next(position) ?? { position, text: ': heartbeat\n\n' };
  }

  #next(position: number): { position: number; text: string } | undefined {
    const { first } = this.#events;
    const events = this.#events.after(position, MAX_EVENTS_AT_ONCE);
    const isGap = first > position + 1;
    if (events.length === 0 && !isGap) return undefined;
    const gap = isGap ? textOf(first - 1, { type: 'gap', from: position + 1, to: first - 1 }) : '';
    return {
      position: events.at(-1)?.n ?? first - 1,
      text: gap + events.map((event) => textOf(event.n, event)).join(''),
    };
  }
}

function textOf(n: number, event: SessionStreamEvent): string {
  return `id: ${n}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}

function numberOf(text: string): number | undefined {
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

function notAPlace(): Failure {
  const expected = 'the id of an event of this session';
  return failure('invalid_request', `header.Last-Event-ID: expected ${expected}`, {
    violations: [{ path: 'header.Last-Event-ID', expected }],
  });
}
