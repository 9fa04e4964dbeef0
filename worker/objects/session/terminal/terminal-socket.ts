/**
 * One socket of a client on a terminal. The runtime tells nobody how much of what was sent still waits, so a client says
 * itself what it took; of one that does not, the bytes are bounded in all.
 */
import { utf8 } from '../../../../shared/encoding.ts';
import {
  encodeMessage,
  MAX_TERMINAL_MESSAGE_BYTES,
  MESSAGE_BYTES,
  MESSAGE_TEXT,
  MessageDecoder,
  TERMINAL_CLIENT_WINDOW_BYTES,
  TERMINAL_UNTOLD_BYTES,
  TerminalControlSchema,
  TerminalEventSchema,
  type TerminalMessage,
} from '../../../../shared/program.ts';
import type { Transfer } from '../transfers/transfer.ts';

/** Sent by the client, and not taken by the terminal's program. */
const MAX_WAITING_INPUT_BYTES = 1024 * 1024;
/** What waits is held message by message, and one may be a single key. */
const HELD_MESSAGE_BYTES = 64;
/** For the last input to be taken in by a host that may be slow. */
const FAREWELL_MS = 5_000;
/** Of RFC 6455. */
const CLOSE = {
  normal: 1000,
  goingAway: 1001,
  policy: 1008,
  tooBig: 1009,
  restart: 1012,
  tryAgain: 1013,
} as const;

export class TerminalSocket {
  readonly #socket: WebSocket;
  readonly #transfer: Transfer;
  readonly #used: () => void;
  #isOpen = true;
  #sentBytes = 0;
  /** As the client says; null while it never said so. */
  #takenBytes: number | null = null;
  #wake: (() => void) | undefined;
  #input: Promise<unknown> = Promise.resolve();
  #waitingInputBytes = 0;

  constructor(socket: WebSocket, transfer: Transfer, { used }: { used: () => void }) {
    this.#socket = socket;
    this.#transfer = transfer;
    this.#used = used;
    socket.addEventListener('message', ({ data }) => this.#receive(data));
    socket.addEventListener('close', () => this.#left());
    socket.addEventListener('error', () => this.#left());
  }

  /** Until the terminal or the client ends it. */
  async run(): Promise<void> {
    const decoder = new MessageDecoder();
    for (let bytes = await this.#transfer.next(); bytes !== undefined; bytes = await this.#transfer.next()) {
      const messages = decoder.push(bytes);
      if (messages === undefined) {
        this.#end(CLOSE.restart, 'the host broke the protocol');
        return;
      }
      for (const message of messages) await this.#give(message);
      this.#transfer.passedOn(bytes.length);
    }
    const done = await this.#transfer.done;
    if (done.ok) this.#end(CLOSE.normal, 'exit');
    else this.#end(done.code === 'not_found' ? CLOSE.goingAway : CLOSE.restart, done.detail);
  }

  async #give({ kind, bytes }: TerminalMessage): Promise<void> {
    if (!this.#isOpen) return;
    this.#used();
    if (kind === MESSAGE_TEXT) {
      const event = TerminalEventSchema.safeParse(jsonOf(new TextDecoder().decode(bytes)));
      if (event.success) this.#send(JSON.stringify(event.data));
      else this.#end(CLOSE.restart, 'the host broke the protocol');
      return;
    }
    while (this.#isOpen && this.#takenBytes !== null && this.#lag(bytes) > TERMINAL_CLIENT_WINDOW_BYTES)
      await this.#taken();
    if (this.#takenBytes === null && this.#sentBytes + bytes.length > TERMINAL_UNTOLD_BYTES) {
      this.#end(CLOSE.tryAgain, 'output was not acknowledged');
      return;
    }
    this.#sentBytes += bytes.length;
    this.#send(bytes);
  }

  #lag(next: Uint8Array): number {
    return this.#sentBytes + next.length - (this.#takenBytes ?? 0);
  }

  async #taken(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    await promise;
    this.#wake = undefined;
  }

  #send(message: string | Uint8Array): void {
    if (!this.#isOpen) return;
    try {
      this.#socket.send(message);
    } catch {
      this.#left();
    }
  }

  #receive(data: unknown): void {
    if (!this.#isOpen) return;
    this.#used();
    if (typeof data === 'string') this.#control(data);
    else if (!(data instanceof ArrayBuffer)) this.#end(CLOSE.policy, 'binary or text was expected');
    else if (data.byteLength > MAX_TERMINAL_MESSAGE_BYTES)
      this.#end(CLOSE.tooBig, `at most ${MAX_TERMINAL_MESSAGE_BYTES} bytes a message`);
    else if (data.byteLength > 0) this.#pass(encodeMessage(MESSAGE_BYTES, new Uint8Array(data)));
  }

  #control(text: string): void {
    const parsed = TerminalControlSchema.safeParse(text.length > 1_024 ? undefined : jsonOf(text));
    if (!parsed.success) this.#end(CLOSE.policy, 'not a control message');
    else if (parsed.data.type === 'taken') this.#clientTook(parsed.data.bytes);
    else this.#pass(encodeMessage(MESSAGE_TEXT, utf8(JSON.stringify(parsed.data))));
  }

  #clientTook(bytes: number): void {
    if (bytes > this.#sentBytes) {
      this.#end(CLOSE.policy, 'more was taken than was sent');
      return;
    }
    this.#takenBytes = Math.max(this.#takenBytes ?? 0, bytes);
    this.#wake?.();
  }

  /** In order, as far as the host takes it. */
  #pass(message: Uint8Array): void {
    const heldBytes = message.length + HELD_MESSAGE_BYTES;
    this.#waitingInputBytes += heldBytes;
    if (this.#waitingInputBytes > MAX_WAITING_INPUT_BYTES) {
      this.#end(CLOSE.tryAgain, 'more input than the terminal takes');
      return;
    }
    this.#input = this.#input
      .then(() => this.#transfer.push(message))
      .then(() => {
        this.#waitingInputBytes -= heldBytes;
      });
  }

  #end(code: number, reason: string): void {
    if (!this.#isOpen) return;
    try {
      this.#socket.close(code, reason.slice(0, 120));
    } catch {
      // Already closed.
    }
    this.#left();
  }

  /** What was typed before still goes in, and the terminal lives on for who comes back. */
  #left(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#wake?.();
    const timer = setTimeout(() => this.#transfer.cancel(), FAREWELL_MS);
    void this.#input.then(() => this.#transfer.allPushed());
    void this.#transfer.done.then(() => clearTimeout(timer));
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
