/** The TCP or TLS connection under a WebSocket, held so that it can be ended when the other side is silent. */
import type { Socket } from 'node:net';
import { Agent, buildConnector } from 'undici';
import { MAX_FRAME_BYTES } from '../../shared/limits.ts';
import { maskedMessage } from './masked-message.ts';

const CONNECT_TIMEOUT_MS = 10_000;
/** For the closing handshake; after it the connection is cut, or a dead one would stay for many minutes. */
const CLOSING_GRACE_MS = 2_000;

export class LinkTransport {
  readonly dispatcher: Agent;
  #socket: Socket | undefined;
  #ended = false;
  #isGathering = false;

  constructor() {
    const connect = buildConnector({ timeout: CONNECT_TIMEOUT_MS });
    this.dispatcher = new Agent({
      // A larger message is dropped, and the connection with it, before it is in memory.
      webSocket: { maxPayloadSize: MAX_FRAME_BYTES },
      connect: (options, callback) => {
        connect(options, (...outcome) => {
          const [error, socket] = outcome;
          if (error !== null) return callback(error, null);
          this.#socket = socket;
          if (this.#ended) socket.destroy();
          callback(null, socket);
        });
      },
    });
  }

  /** Handed over and not yet taken by the operating system. */
  get bufferedBytes(): number {
    return this.#socket?.writableLength ?? 0;
  }

  /**
   * Binary messages of an open WebSocket, written beside undici: that masks byte after byte, in a buffer of its own for
   * each message, which is a third of what a stream costs.
   */
  send(parts: readonly Uint8Array[]): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    this.#gather(socket);
    const { bytes, release } = maskedMessage(parts);
    socket.write(bytes, release);
  }

  /** What is sent in one turn goes in one write. */
  #gather(socket: Socket): void {
    if (this.#isGathering) return;
    this.#isGathering = true;
    socket.cork();
    process.nextTick(() => {
      this.#isGathering = false;
      socket.uncork();
    });
  }

  endSoon(): void {
    this.#ended = true;
    const socket = this.#socket;
    setTimeout(() => socket?.destroy(), CLOSING_GRACE_MS).unref();
  }
}
