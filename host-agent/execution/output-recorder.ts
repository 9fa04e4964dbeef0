/**
 * The output of one execution on its way to the edge: digests and true totals of every byte, frames under the link's
 * window, and the head and tail that a result keeps of a long stream.
 */
import type { StreamName } from '../../shared/execution.ts';
import type { Relay } from '../../shared/grant.ts';
import {
  INLINE_HEAD_BYTES,
  INLINE_TAIL_BYTES,
  MAX_FRAME_PAYLOAD_BYTES,
  MAX_STORED_OUTPUT_BYTES,
  OUTPUT_FRAME_BYTES,
} from '../../shared/limits.ts';
import { StreamDigest } from '../digest/stream-digest.ts';
import type { CarriedOutput, CarriedStream } from './carried.ts';
import { StreamQueue } from './stream-queue.ts';
import { TailRing } from './tail-ring.ts';
import type { OutgoingFrame, Uplink } from './uplink.ts';
import { continuationPrefixLength } from './utf8-edge.ts';

/** How long output waits for more of it before it is sent: short where a client reads along. */
const FLUSH_DELAY_MS = { full: 5, kept: 50, bounded: 50 } as const satisfies Record<Relay, number>;
const NO_BYTES = new Uint8Array(0);
export const NO_OUTPUT_SHA256 = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

export interface StreamSummary {
  sha256: string;
  bytes: number;
  /** Bytes between head and tail are in no result. */
  truncated: boolean;
}

export interface RecordedOutput {
  /** What is still to be sent: rest of the output, then tails. */
  frames: OutgoingFrame[];
  stdout: StreamSummary;
  stderr: StreamSummary;
}

interface StreamState {
  name: StreamName;
  /** From the first byte on. */
  digest: StreamDigest;
  totalBytes: number;
  queue: StreamQueue;
  ring: TailRing;
}

export class OutputRecorder {
  readonly #executionId: string;
  readonly #relay: Relay;
  readonly #uplink: Uplink;
  readonly #streams: { stdout: StreamState; stderr: StreamState };
  /** Of the pump, once it waits for something: most calls print nothing. */
  #pumpEnd: AbortController | undefined;
  #hasEnded = false;
  #isHeld = false;
  #pumping = false;
  #flushTimer: NodeJS.Timeout | undefined;
  #flushDue = false;
  #waiters: (() => void)[] = [];

  constructor(options: { executionId: string; relay: Relay; uplink: Uplink }) {
    this.#executionId = options.executionId;
    this.#relay = options.relay;
    this.#uplink = options.uplink;
    this.#streams = { stdout: newStream('stdout'), stderr: newStream('stderr') };
  }

  /** Takes bytes, which must not change afterwards. Settles when more may come. */
  readonly write = (name: StreamName, bytes: Uint8Array): Promise<void> => {
    if (this.#hasEnded || bytes.length === 0) return Promise.resolve();
    const stream = this.#streams[name];
    const sent = bytes.subarray(0, Math.max(0, this.#sentBytesAtMost - stream.totalBytes));
    stream.totalBytes += bytes.length;
    stream.digest.update(bytes);
    stream.ring.push(stream.queue.push(sent, this.#relay !== 'bounded'));
    if (sent.length < bytes.length) stream.ring.push(stream.queue.push(bytes.subarray(sent.length), false));
    if (stream.queue.waitingBytes === 0) return Promise.resolve();
    if (stream.queue.waitingBytes >= OUTPUT_FRAME_BYTES) this.#startPump();
    else this.#flushSoon();
    return this.#roomToWrite(stream);
  };

  get #sentBytesAtMost(): number {
    return this.#relay === 'kept' ? MAX_STORED_OUTPUT_BYTES : Number.POSITIVE_INFINITY;
  }

  /** Sends what waits for more of it, as far as the window takes it. */
  readonly flush = (): void => {
    if (this.#hasEnded) return;
    clearTimeout(this.#flushTimer);
    this.#flush();
  };

  /** Nothing is sent until `goOn`. */
  hold(): void {
    this.#isHeld = true;
  }

  goOn(): void {
    this.#isHeld = false;
    this.flush();
  }

  /** How it stands, for another host to go on with it. */
  carry(): CarriedOutput {
    const { stdout, stderr } = this.#streams;
    return { stdout: carryStream(stdout), stderr: carryStream(stderr) };
  }

  /** Before anything is written. */
  goOnFrom(carried: CarriedOutput): void {
    for (const name of ['stdout', 'stderr'] as const) {
      const { total_bytes, digest, queue, tail } = carried[name];
      const stream = this.#streams[name];
      stream.totalBytes = total_bytes;
      stream.digest = new StreamDigest(digest);
      stream.queue.goOnFrom(queue);
      stream.ring.push(Buffer.from(tail, 'base64'));
    }
    this.flush();
  }

  /** Ends recording; nothing is sent from here on. */
  finish(): RecordedOutput {
    this.#hasEnded = true;
    // With a reason of its own no exception is made for it.
    this.#pumpEnd?.abort('ended');
    clearTimeout(this.#flushTimer);
    this.#wakeWriters();
    const { stdout, stderr } = this.#streams;
    const frames: OutgoingFrame[] = [];
    for (const stream of [stdout, stderr]) {
      for (let cut = stream.queue.cut(true); cut !== undefined; cut = stream.queue.cut(true)) {
        frames.push(this.#frame('output', stream.name, cut));
      }
    }
    const summaries = { stdout: this.#end(stdout, frames), stderr: this.#end(stderr, frames) };
    return { frames, ...summaries };
  }

  /** Output beyond the head is not queued in a bounded relay, so there the program never waits for a reader. */
  #roomToWrite(stream: StreamState): Promise<void> {
    if (this.#relay === 'bounded' || stream.queue.waitingBytes < 2 * OUTPUT_FRAME_BYTES) {
      return Promise.resolve();
    }
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  #flushSoon(): void {
    this.#flushTimer ??= setTimeout(() => this.#flush(), FLUSH_DELAY_MS[this.#relay]);
  }

  #flush(): void {
    this.#flushTimer = undefined;
    this.#flushDue = true;
    this.#startPump();
  }

  #startPump(): void {
    if (this.#pumping || this.#isHeld) return;
    this.#pumping = true;
    void this.#pump();
  }

  async #pump(): Promise<void> {
    this.#pumpEnd ??= new AbortController();
    const { signal } = this.#pumpEnd;
    for (let stream = this.#due(); stream !== undefined; stream = this.#due()) {
      const bytes = Math.min(stream.queue.waitingBytes, OUTPUT_FRAME_BYTES);
      await this.#uplink.waitForRoom(bytes, this.#executionId, signal);
      if (signal.aborted) return;
      if (this.#isHeld) break;
      const cut = stream.queue.cut(false);
      if (cut === undefined) continue;
      const { frame, payload } = this.#frame('output', stream.name, cut);
      const seq = this.#uplink.send(frame, payload);
      this.#wakeWriters();
      if (this.#relay === 'kept') await this.#unhurried(seq, signal);
      if (signal.aborted) return;
    }
    this.#flushDue = false;
    this.#pumping = false;
    const { stdout, stderr } = this.#streams;
    if ((stdout.queue.hasCut || stderr.queue.hasCut) && !this.#isHeld) this.#flushSoon();
  }

  /** Nobody reads along with what is only kept, so it leaves the edge time for others: one frame is under way. */
  async #unhurried(seq: number, signal: AbortSignal): Promise<void> {
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    const end = (): void => resolve();
    signal.addEventListener('abort', end, { once: true });
    await Promise.race([this.#uplink.whenAcknowledged(seq), ended]);
    signal.removeEventListener('abort', end);
  }

  /** The stream whose oldest unsent byte came first, where enough waits or a flush is due. */
  #due(): StreamState | undefined {
    const { stdout, stderr } = this.#streams;
    const ready = [stdout, stderr].filter(
      ({ queue }) => queue.hasCut && (this.#flushDue || queue.waitingBytes >= OUTPUT_FRAME_BYTES),
    );
    return ready.sort((left, right) => left.queue.waitingSinceMs - right.queue.waitingSinceMs)[0];
  }

  #wakeWriters(): void {
    const { stdout, stderr } = this.#streams;
    const full = stdout.queue.waitingBytes + stderr.queue.waitingBytes >= 3 * OUTPUT_FRAME_BYTES;
    if (full && !this.#hasEnded) return;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const resolve of waiters) resolve();
  }

  #end(stream: StreamState, frames: OutgoingFrame[]): StreamSummary {
    const headEnd = stream.queue.headEnd ?? stream.totalBytes;
    let tail: Uint8Array = NO_BYTES;
    if (stream.totalBytes > headEnd) {
      tail = stream.ring.bytes();
      // Where bytes are left out, the tail begins with a whole character.
      if (stream.totalBytes - headEnd > tail.length) tail = tail.subarray(continuationPrefixLength(tail));
    }
    const tailStart = stream.totalBytes - tail.length;
    for (let start = 0; start < tail.length; start += MAX_FRAME_PAYLOAD_BYTES) {
      const bytes = tail.subarray(start, start + MAX_FRAME_PAYLOAD_BYTES);
      frames.push(this.#frame('tail', stream.name, { offset: tailStart + start, bytes }));
    }
    return {
      sha256: stream.digest.hex(),
      bytes: stream.totalBytes,
      truncated: tailStart > headEnd,
    };
  }

  #frame(
    type: 'output' | 'tail',
    stream: StreamName,
    cut: { offset: number; bytes: Uint8Array },
  ): OutgoingFrame {
    const frame = { type, execution_id: this.#executionId, stream, offset: cut.offset };
    return { frame, payload: cut.bytes };
  }
}

function carryStream({ totalBytes, digest, queue, ring }: StreamState): CarriedStream {
  return {
    total_bytes: totalBytes,
    digest: digest.carry(),
    queue: queue.carry(),
    tail: ring.bytes().toString('base64'),
  };
}

function newStream(name: StreamName): StreamState {
  return {
    name,
    digest: new StreamDigest(),
    totalBytes: 0,
    queue: new StreamQueue({ headBytes: INLINE_HEAD_BYTES, frameBytes: OUTPUT_FRAME_BYTES }),
    ring: new TailRing(INLINE_TAIL_BYTES),
  };
}
