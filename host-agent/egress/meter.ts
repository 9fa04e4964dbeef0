/** Counts what the connections of one sandbox move, and ends them when that is too much. */
import type { Socket } from 'node:net';

const LOOK_MS = 500;
/** Of neither side a byte for so long: the connection is forgotten by somebody on its way. */
const IDLE_TIMEOUT_MS = 600_000;

export interface Traffic {
  readonly sent: number;
  readonly received: number;
}

export class Meter {
  readonly #maxBytes: number;
  readonly #open = new Set<Socket>();
  #sent = 0;
  #received = 0;
  #watch: NodeJS.Timeout | undefined;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get connections(): number {
    return this.#open.size;
  }

  get total(): Traffic {
    let sent = this.#sent;
    let received = this.#received;
    for (const socket of this.#open) {
      sent += socket.bytesWritten;
      received += socket.bytesRead;
    }
    return { sent, received };
  }

  get isExhausted(): boolean {
    const { sent, received } = this.total;
    return sent + received >= this.#maxBytes;
  }

  /** From now until its end; `onEnd` hears what it moved. */
  track(socket: Socket, onEnd: (traffic: Traffic) => void): void {
    this.#open.add(socket);
    this.#watch ??= setInterval(() => {
      if (this.isExhausted) this.cut();
    }, LOOK_MS).unref();
    socket.setTimeout(IDLE_TIMEOUT_MS, () => socket.destroy());
    // Whoever carries it hears of faults from its streams; without a listener one would end the agent.
    socket.on('error', () => undefined);
    socket.once('close', () => {
      this.#open.delete(socket);
      this.#sent += socket.bytesWritten;
      this.#received += socket.bytesRead;
      if (this.#open.size === 0) this.#rest();
      onEnd({ sent: socket.bytesWritten, received: socket.bytesRead });
    });
  }

  cut(): void {
    for (const socket of this.#open) socket.destroy();
  }

  #rest(): void {
    clearInterval(this.#watch);
    this.#watch = undefined;
  }
}
