/** A client of a terminal: what came so far as text, the events, and what a person would do. */
import { WebSocket } from 'undici';
import { type TerminalEvent, TerminalEventSchema } from '../../shared/program.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { until } from './until.ts';

const KEPT_BYTES = 256 * 1024;

export interface TerminalOptions {
  query?: Record<string, string | number>;
  protocols?: string[];
  headers?: Record<string, string>;
  /** Says what it took; true by default. */
  acknowledges?: boolean;
}

export class TerminalClient {
  readonly socket: WebSocket;
  readonly events: TerminalEvent[] = [];
  readonly closed: Promise<{ code: number; reason: string }>;
  output = Buffer.alloc(0);
  receivedBytes = 0;
  acknowledges: boolean;
  #seen = 0;

  private constructor(socket: WebSocket, acknowledges: boolean) {
    this.socket = socket;
    this.acknowledges = acknowledges;
    socket.binaryType = 'arraybuffer';
    socket.addEventListener('message', ({ data }) => this.#receive(data));
    this.closed = new Promise((resolve) => {
      socket.addEventListener('close', ({ code, reason }) => resolve({ code, reason }));
    });
  }

  /** Rejects where the upgrade is refused. */
  static async open(session: SessionClient, options: TerminalOptions = {}): Promise<TerminalClient> {
    const { query = {}, protocols = [], acknowledges = true } = options;
    const headers = options.headers ?? { authorization: `Bearer ${session.api.token}` };
    const search = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
    const url = `${session.api.url.replace('http', 'ws')}${session.path}/terminal?${search}`;
    const socket = new WebSocket(url, { protocols, headers });
    const client = new TerminalClient(socket, acknowledges);
    await new Promise<void>((resolve, reject) => {
      socket.addEventListener('open', () => resolve());
      socket.addEventListener('error', () => reject(new Error('the socket was refused')));
    });
    await until('the terminal is ready', PATIENCE_MS, () => client.events[0]);
    return client;
  }

  get id(): string {
    const [ready] = this.events;
    if (ready?.type !== 'ready') throw new Error('the first event is not ready');
    return ready.terminal_id;
  }

  /** Of the byte that comes next. */
  get position(): number {
    const [ready] = this.events;
    return (ready?.type === 'ready' ? ready.offset : 0) + this.receivedBytes;
  }

  type(text: string): void {
    this.socket.send(Buffer.from(text));
  }

  control(message: unknown): void {
    this.socket.send(JSON.stringify(message));
  }

  /** Waits for the text after everything that was waited for before. */
  async shows(text: string): Promise<void> {
    const at = await until(`the terminal shows ${text}`, PATIENCE_MS, () => {
      const found = this.output.indexOf(text, this.#seen);
      return found < 0 ? undefined : found;
    }).catch((error: unknown) => {
      throw new Error(`after ${JSON.stringify(this.output.toString().slice(-500))}`, { cause: error });
    });
    this.#seen = at + Buffer.byteLength(text);
  }

  async exits(): Promise<Extract<TerminalEvent, { type: 'exit' }>> {
    return until('the terminal ends', PATIENCE_MS, () =>
      this.events.find((event): event is Extract<TerminalEvent, { type: 'exit' }> => event.type === 'exit'),
    );
  }

  async leave(): Promise<void> {
    this.socket.close();
    await this.closed;
  }

  #receive(data: unknown): void {
    if (typeof data === 'string') {
      this.events.push(TerminalEventSchema.parse(JSON.parse(data)));
      return;
    }
    if (!(data instanceof ArrayBuffer)) throw new Error('a message of neither kind');
    this.receivedBytes += data.byteLength;
    const whole = Buffer.concat([this.output, new Uint8Array(data)]);
    const gone = Math.max(0, whole.length - KEPT_BYTES);
    this.output = whole.subarray(gone);
    this.#seen = Math.max(0, this.#seen - gone);
    if (this.acknowledges) this.control({ type: 'taken', bytes: this.receivedBytes });
  }
}
