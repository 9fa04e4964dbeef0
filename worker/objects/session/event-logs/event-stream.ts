/** The events of one execution as server-sent events: from a cursor to the end, every byte once. */
import { utf8 } from '../../../../shared/encoding.ts';
import {
  type EventCursor,
  type Execution,
  formatCursor,
  type StreamEvent,
} from '../../../../shared/execution.ts';
import { OUTPUT_FRAME_BYTES, SSE_HEARTBEAT_MS } from '../../../../shared/limits.ts';
import type { OutputPiece } from '../rows/records.ts';
import { TAIL_ROWS_FROM } from '../rows/row-numbers.ts';
import type { EventLog, ReaderPosition } from './event-log.ts';
import { bytesOf, plain, type TextPart } from './event-text.ts';
import { joinBytes } from './output-pieces.ts';
import { streamText } from './stream-text.ts';

/** Output that is put into one event at most, unless one piece is longer. */
const EVENT_BYTES = OUTPUT_FRAME_BYTES;
/** Of an execution that has ended, a reader that takes nothing for this long is let go. It can come back. */
const STALLED_MS = 60_000;
const STALLED_LOOK_MS = 5_000;

export interface EventStreamSource {
  executionId: string;
  log: EventLog;
  encoding: 'utf-8' | 'base64';
  /** Calls of a program that its caller executes: the next ones behind the first `after` of them. */
  toolCalls: (after: number) => Extract<StreamEvent, { event: 'tool_call' }>[];
  /** When the execution started, as soon as that is known. */
  startedAt: () => string | null;
  /** Since when the session stands still; null while it runs. */
  pausedAtMs: () => number | null;
  /** The result without the text of its streams, once the execution has ended. */
  ended: () => Execution | undefined;
}

export function eventStream(source: EventStreamSource, cursor: EventCursor): Response {
  const reader = new EventReader(source, cursor);
  let watch: ReturnType<typeof setInterval> | undefined;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      watch = setInterval(() => {
        if (!reader.isStalled(Date.now())) return;
        clearInterval(watch ?? null);
        reader.close();
        controller.close();
      }, STALLED_LOOK_MS);
      // Names the place before the first event, so that a stream cut early can be taken up again.
      controller.enqueue(utf8(`: ${source.executionId}\nid: ${formatCursor(reader.cursor)}\n\n`));
    },
    async pull(controller) {
      const bytes = await reader.next();
      if (bytes !== undefined) {
        controller.enqueue(bytes);
        return;
      }
      clearInterval(watch ?? null);
      controller.close();
    },
    cancel() {
      clearInterval(watch ?? null);
      reader.close();
    },
  });
  return new Response(body, {
    headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' },
  });
}

class EventReader {
  readonly cursor: EventCursor;
  readonly #source: EventStreamSource;
  readonly #position: ReaderPosition;
  /** Events other than output that were passed so far, given or skipped. */
  #others = 0;
  /** The pause that the reader was told of. */
  #toldPausedAtMs: number | null = null;
  /** Calls of the program among them. */
  #toolCalls = 0;
  /** What was said before the reader came is over. */
  #heardProgress: number;
  #closed = false;
  /** One timer for many waits: to set and clear one for each would cost more than what it waits for. */
  #heartbeat: ReturnType<typeof setTimeout> | undefined;
  #tooLong: ((isChanged: false) => void) | undefined;
  /** Whether the reader waits for something, and when it was given something last. */
  #asked = false;
  #gaveAtMs = Date.now();

  constructor(source: EventStreamSource, cursor: EventCursor) {
    this.#source = source;
    this.cursor = { ...cursor };
    this.#position = {
      stdout: cursor.stdoutBytes,
      stderr: cursor.stderrBytes,
      row: 0,
      ring: 0,
      tailRow: TAIL_ROWS_FROM,
    };
    this.#heardProgress = source.log.progress.told;
    source.log.addReader(this.#position);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#heartbeat ?? null);
    this.#source.log.removeReader(this.#position);
    // Whoever waits for this reader's next event waits no longer.
    this.#source.log.wake();
  }

  isStalled(nowMs: number): boolean {
    return !this.#closed && !this.#asked && this.#source.log.hasEnded && nowMs - this.#gaveAtMs >= STALLED_MS;
  }

  /** The next events; `undefined` at the end. */
  async next(): Promise<Uint8Array | undefined> {
    this.#asked = true;
    const bytes = await this.#next();
    this.#asked = false;
    this.#gaveAtMs = Date.now();
    return bytes;
  }

  async #next(): Promise<Uint8Array | undefined> {
    while (!this.#closed) {
      const bytes = bytesOf(this.#ready());
      if (bytes.length > 0) return bytes;
      if (this.#source.ended() !== undefined) break;
      if (!(await this.#changed())) return utf8(': heartbeat\n\n');
    }
    this.close();
    return undefined;
  }

  #ready(): TextPart[] {
    const { log, startedAt, ended } = this.#source;
    const begun = this.#started(startedAt());
    const started = begun + this.#called();
    // Taken before the read: what ends between the two is given by the next call.
    const execution = ended();
    const pieces = log.read(this.#position, EVENT_BYTES);
    const output = this.#output(pieces);
    if (pieces.length > 0 || this.#nextCalls().length > 0) return [plain(started), ...output];
    if (execution === undefined) return [plain(started + this.#progress() + this.#pause())];
    return [plain(started), ...output, plain(this.#closing(execution))];
  }

  #started(startedAt: string | null): string {
    if (startedAt === null || this.#others > 0) return '';
    return this.#other({ event: 'started', execution_id: this.#source.executionId, started_at: startedAt });
  }

  /** Not counted: it says how things stand, and is said again to whoever comes back. */
  #pause(): string {
    const pausedAtMs = this.#source.pausedAtMs();
    if (pausedAtMs === this.#toldPausedAtMs) return '';
    this.#toldPausedAtMs = pausedAtMs;
    return this.#event(
      pausedAtMs === null
        ? { event: 'resumed', at: new Date().toISOString() }
        : { event: 'paused', at: new Date(pausedAtMs).toISOString() },
    );
  }

  /** Not counted: it says how things stand. */
  #progress(): string {
    const { progress: newest } = this.#source.log;
    const news = newest.after(this.#heardProgress);
    this.#heardProgress = newest.told;
    return news
      .map(({ id, tool_name, progress, total, message }) =>
        this.#event({ event: 'progress', id, tool_name, progress, total, message }),
      )
      .join('');
  }

  /** Behind the start and before the results: then the order is the same for every reader. */
  #called(): string {
    if (this.#others === 0) return '';
    let text = '';
    for (let next = this.#nextCalls(); next.length > 0; next = this.#nextCalls()) {
      this.#toolCalls += next.length;
      text += next.map((event) => this.#other(event)).join('');
      if (text !== '') break;
    }
    return text;
  }

  #nextCalls(): Extract<StreamEvent, { event: 'tool_call' }>[] {
    return this.#source.toolCalls(this.#toolCalls);
  }

  #output(pieces: readonly OutputPiece[]): TextPart[] {
    return runsOf(pieces).flatMap((run) => {
      const at = run.stream === 'stdout' ? 'stdoutBytes' : 'stderrBytes';
      const gap = run.offset > this.cursor[at] ? this.#gap(run.stream, run.offset) : '';
      this.cursor[at] = run.offset + run.bytes.length;
      return [plain(gap), ...this.#outputEvent(run)];
    });
  }

  /** As `#event` writes it, but in parts: put together, a text of this length would be copied once more. */
  #outputEvent({ stream, offset, bytes }: OutputPiece): TextPart[] {
    const { encoding } = this.#source;
    const text = streamText(bytes, encoding);
    const quoted = JSON.stringify(text);
    const escapes = quoted.length - text.length;
    return [
      plain(
        `id: ${formatCursor(this.cursor)}\nevent: ${stream}\ndata: {"event":"${stream}","offset":${offset},"text":`,
      ),
      { text: quoted, bytes: escapes + (encoding === 'base64' ? text.length : bytes.length) },
      plain(`,"encoding":"${encoding}"}\n\n`),
    ];
  }

  #gap(stream: 'stdout' | 'stderr', to: number): string {
    const at = stream === 'stdout' ? 'stdoutBytes' : 'stderrBytes';
    const from = this.cursor[at];
    this.cursor[at] = to;
    return this.#event({ event: 'gap', stream, from, to });
  }

  #closing(execution: Execution): string {
    let text = '';
    if (execution.stdout_bytes > this.cursor.stdoutBytes) text += this.#gap('stdout', execution.stdout_bytes);
    if (execution.stderr_bytes > this.cursor.stderrBytes) text += this.#gap('stderr', execution.stderr_bytes);
    for (const { mime, data } of execution.results) text += this.#other({ event: 'result', mime, data });
    // What was sent as events of its own is not sent once more.
    text += this.#other({ event: 'end', execution: { ...execution, results: [] } });
    this.close();
    return text;
  }

  /** An event that is not output: counted, and given unless the cursor is behind it already. */
  #other(event: StreamEvent): string {
    this.#others += 1;
    if (this.#others <= this.cursor.otherEvents) return '';
    this.cursor.otherEvents = this.#others;
    return this.#event(event);
  }

  #event(event: StreamEvent): string {
    return `id: ${formatCursor(this.cursor)}\nevent: ${event.event}\ndata: ${JSON.stringify(event)}\n\n`;
  }

  /** Waits for a change; false when it is time for a heartbeat. */
  async #changed(): Promise<boolean> {
    const change = this.#source.log.changed();
    const { promise: silence, resolve } = Promise.withResolvers<false>();
    this.#tooLong = resolve;
    this.#heartbeat ??= setTimeout(() => this.#tick(), SSE_HEARTBEAT_MS);
    try {
      return await Promise.race([change.promise.then(() => true), silence]);
    } finally {
      this.#tooLong = undefined;
      change.cancel();
    }
  }

  #tick(): void {
    this.#heartbeat = undefined;
    if (this.#tooLong === undefined) return;
    // Since it was given something: a change may have nothing for it, as another reader that leaves.
    const leftMs = SSE_HEARTBEAT_MS - (Date.now() - this.#gaveAtMs);
    if (leftMs <= 0) this.#tooLong(false);
    else this.#heartbeat = setTimeout(() => this.#tick(), leftMs);
  }
}

/** Neighbouring pieces of one stream as one, up to the size of an event. */
function runsOf(pieces: readonly OutputPiece[]): OutputPiece[] {
  const runs: { stream: OutputPiece['stream']; offset: number; length: number; chunks: Uint8Array[] }[] = [];
  for (const { stream, offset, bytes } of pieces) {
    const last = runs.at(-1);
    const joins =
      last?.stream === stream && last.offset + last.length === offset && last.length < EVENT_BYTES;
    if (joins) {
      last.chunks.push(bytes);
      last.length += bytes.length;
    } else {
      runs.push({ stream, offset, length: bytes.length, chunks: [bytes] });
    }
  }
  return runs.map(({ stream, offset, chunks }) => ({ stream, offset, bytes: joinBytes(chunks) }));
}
