/** What is sent on a link in one turn, and goes in one write: small frames together in one message, where the edge takes that. */
import { MAX_BUNDLED_FRAMES } from '../../shared/bundle.ts';
import { OUTPUT_FRAME_BYTES } from '../../shared/limits.ts';

/** A larger message would have to be put together in more memory than there is at hand for one. */
const MAX_BUNDLE_BYTES = OUTPUT_FRAME_BYTES;
const BUNDLE_MARK = new Uint8Array(2);
const FRAME_LENGTH_BYTES = 4;

export interface OutboxOptions {
  bundles: boolean;
  /** One message, in parts. */
  write: (parts: readonly Uint8Array[]) => void;
}

interface Frame {
  head: Uint8Array;
  payload: Uint8Array;
}

export class Outbox {
  readonly #options: OutboxOptions;
  #frames: Frame[] = [];
  #bytes = 0;

  constructor(options: OutboxOptions) {
    this.#options = options;
  }

  /** Waits for the end of the turn. */
  get waitingBytes(): number {
    return this.#bytes;
  }

  add(head: Uint8Array, payload: Uint8Array): void {
    if (this.#frames.length === 0) process.nextTick(() => this.flush());
    this.#frames.push({ head, payload });
    this.#bytes += head.length + payload.length;
  }

  flush(): void {
    const frames = this.#frames;
    this.#frames = [];
    this.#bytes = 0;
    let bundle: Frame[] = [];
    let bundleBytes = 0;
    for (const frame of frames) {
      const bytes = FRAME_LENGTH_BYTES + frame.head.length + frame.payload.length;
      const fits = bundleBytes + bytes <= MAX_BUNDLE_BYTES && bundle.length < MAX_BUNDLED_FRAMES;
      if (!fits || !this.#options.bundles) {
        this.#write(bundle);
        bundle = [];
        bundleBytes = 0;
      }
      bundle.push(frame);
      bundleBytes += bytes;
    }
    this.#write(bundle);
  }

  #write(frames: readonly Frame[]): void {
    const [first] = frames;
    if (first === undefined) return;
    const parts = frames.flatMap(({ head, payload }) => [lengthOf(head, payload), head, payload]);
    this.#options.write(frames.length === 1 ? [first.head, first.payload] : [BUNDLE_MARK, ...parts]);
  }
}

function lengthOf(head: Uint8Array, payload: Uint8Array): Uint8Array {
  const bytes = Buffer.allocUnsafe(FRAME_LENGTH_BYTES);
  bytes.writeUInt32BE(head.length + payload.length);
  return bytes;
}
