/** The way to an MCP server that reads and writes lines of JSON, over the socket that its process in a sandbox is behind. */
import {
  deserializeMessage,
  type JSONRPCMessage,
  serializeMessage,
  type Transport,
} from '@modelcontextprotocol/client';
import { utf8 } from '../../../shared/encoding.ts';
import { MAX_TERMINAL_MESSAGE_BYTES, TerminalEventSchema } from '../../../shared/program.ts';
import { MAX_SOURCE_BYTES } from '../../../shared/tool-source.ts';
import { ServerFault } from '../server-fault.ts';
import { exactMessage } from './exact-message.ts';

/** A list of tools is one line. */
const MAX_LINE_CHARACTERS = 2 * MAX_SOURCE_BYTES;
const TAKEN_STEP_BYTES = 32 * 1024;
/** Also what keeps the sandbox: it is in use as long as there is a connection. */
const TAKEN_INTERVAL_MS = 20_000;
const MAX_STDERR_CHARACTERS = 2_000;
const MAX_SHOWN_CHARACTERS = 200;

export interface StdioOptions {
  /** Starts the process. */
  open: () => Promise<WebSocket>;
  /** It did not end by itself: what it was in may be gone. */
  onCut: () => void;
}

export class StdioTransport implements Transport {
  /** By these two the client knows what kind of transport it is. */
  readonly stderr = null;
  readonly pid = null;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: <Message extends JSONRPCMessage>(message: Message) => void;
  readonly #options: StdioOptions;
  readonly #decoder = new TextDecoder();
  #socket: WebSocket | undefined;
  #lineParts: string[] = [];
  #lineCharacters = 0;
  #stderr = '';
  #receivedBytes = 0;
  #toldBytes = 0;
  #ticks: ReturnType<typeof setInterval> | null = null;
  #fault: string | undefined;

  constructor(options: StdioOptions) {
    this.#options = options;
  }

  /** Why the process is gone, where it is. */
  get fault(): string | undefined {
    return this.#fault;
  }

  async start(): Promise<void> {
    const socket = await this.#options.open();
    socket.binaryType = 'arraybuffer';
    this.#socket = socket;
    socket.addEventListener('message', ({ data }) => this.#receive(data));
    socket.addEventListener('close', () => this.#cut());
    socket.addEventListener('error', () => this.#cut());
    socket.accept();
    this.#ticks = setInterval(() => this.#tellTaken(), TAKEN_INTERVAL_MS);
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const socket = this.#socket;
    if (socket === undefined) throw new ServerFault(this.#fault ?? 'the process does not run');
    const bytes = utf8(serializeMessage(message));
    for (let at = 0; at < bytes.length; at += MAX_TERMINAL_MESSAGE_BYTES)
      socket.send(bytes.slice(at, at + MAX_TERMINAL_MESSAGE_BYTES));
  }

  async close(): Promise<void> {
    this.#ended(undefined);
  }

  #cut(): void {
    if (this.#socket === undefined) return;
    this.#ended('the connection to the process was cut');
    this.#options.onCut();
  }

  #receive(data: unknown): void {
    if (typeof data === 'string') {
      this.#event(data);
      return;
    }
    if (!(data instanceof ArrayBuffer)) return;
    this.#receivedBytes += data.byteLength;
    if (this.#receivedBytes - this.#toldBytes >= TAKEN_STEP_BYTES) this.#tellTaken();
    this.#text(this.#decoder.decode(data, { stream: true }));
  }

  /** A message may come in any pieces, and several in one. */
  #text(text: string): void {
    const lines = text.split('\n');
    const rest = lines.pop() ?? '';
    for (const end of lines) {
      this.#lineParts.push(end);
      const line = this.#lineParts.join('');
      this.#lineParts = [];
      this.#lineCharacters = 0;
      this.#message(line);
    }
    if (rest !== '') this.#lineParts.push(rest);
    this.#lineCharacters += rest.length;
    if (this.#lineCharacters > MAX_LINE_CHARACTERS) this.#ended('a line of the process is too long');
  }

  /** Servers write other things to their output too: what is no message is nothing. */
  #message(line: string): void {
    if (!line.trimStart().startsWith('{')) return;
    try {
      this.onmessage?.(deserializeMessage(exactMessage(line)));
    } catch (error: unknown) {
      this.onerror?.(error instanceof Error ? error : new Error('not a message'));
    }
  }

  #event(text: string): void {
    const event = TerminalEventSchema.safeParse(JSON.parse(text)).data;
    if (event?.type === 'stderr') this.#stderr = (this.#stderr + event.text).slice(-MAX_STDERR_CHARACTERS);
    if (event?.type !== 'exit') return;
    const how = event.signal === null ? `with exit code ${event.exit_code}` : `by ${event.signal}`;
    const [last] = this.#stderr.trim().split('\n').slice(-1);
    const said = last === undefined || last === '' ? '' : `: ${printed(last)}`;
    if (event.signal !== null) this.#options.onCut();
    this.#ended(`the process ended ${how}${said}`);
  }

  #tellTaken(): void {
    this.#toldBytes = this.#receivedBytes;
    this.#socket?.send(JSON.stringify({ type: 'taken', bytes: this.#receivedBytes }));
  }

  #ended(fault: string | undefined): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    this.#socket = undefined;
    this.#fault = fault;
    clearInterval(this.#ticks);
    try {
      socket.close(1000);
    } catch {
      // Already closed.
    }
    this.onclose?.();
  }
}

function printed(text: string): string {
  return text.replaceAll(/\p{C}+/gu, ' ').slice(0, MAX_SHOWN_CHARACTERS);
}
