/** How much of the disk is for snapshots that are kept, sealed and plain together. */
import { mkdir, statfs } from 'node:fs/promises';

/** The disk is there for sandboxes first. */
const MAX_SHARE_OF_DISK = 1 / 8;

interface Held {
  readonly bytes: number;
  /** False where nothing is held. */
  dropOldest(): Promise<boolean>;
}

export interface KeptRoomOptions {
  /** On the disk that it is about; made where it is not there. */
  directory: string;
  /** 0: nothing is kept. */
  maxBytes: number;
}

/** Room that is about to be taken; dispose it once what it is for counts by itself, or comes to nothing. */
type Reservation = Disposable;

export class KeptRoom {
  readonly #options: KeptRoomOptions;
  #reservedBytes = 0;
  /** What counts, in the order in which it gives way. */
  readonly #held: Held[] = [];

  constructor(options: KeptRoomOptions) {
    this.#options = options;
  }

  get bytes(): number {
    return this.#held.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** What is added first gives way first. */
  add(held: Held): void {
    this.#held.push(held);
  }

  /** For so many bytes of `of`: what gives way before it goes, then the oldest of its own. Undefined where that is not enough. */
  async reserve(bytes: number, of: Held): Promise<Reservation | undefined> {
    const maxBytes = await this.#maxBytes();
    const givingWay = this.#held.slice(0, this.#held.indexOf(of) + 1);
    const mayGo = givingWay.reduce((sum, held) => sum + held.bytes, 0);
    if (this.#takenBytes - mayGo + bytes > maxBytes) return undefined;
    for (const held of givingWay) {
      while (this.#takenBytes + bytes > maxBytes) if (!(await held.dropOldest())) break;
    }
    if (this.#takenBytes + bytes > maxBytes) return undefined;
    this.#reservedBytes += bytes;
    let isReserved = true;
    return {
      [Symbol.dispose]: () => {
        if (isReserved) this.#reservedBytes -= bytes;
        isReserved = false;
      },
    };
  }

  get #takenBytes(): number {
    return this.bytes + this.#reservedBytes;
  }

  async #maxBytes(): Promise<number> {
    const { directory, maxBytes } = this.#options;
    if (maxBytes === 0) return 0;
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const { bavail, bsize } = await statfs(directory);
    return Math.min(maxBytes, Math.floor((bavail * bsize + this.bytes) * MAX_SHARE_OF_DISK));
  }
}
