/**
 * The proxy port in one guest: keeps its program running there and gives each connection that comes as a stream. The
 * program runs as the user of the session's programs, which may end it; nothing that it says is believed beyond that a
 * program of the guest said it.
 */
import { setTimeout as wait } from 'node:timers/promises';
import type { Channel } from '../guest-link/channel.ts';
import type { GuestLink } from '../guest-link/guest-link.ts';
import { LengthPrefixedDecoder } from '../guest-link/length-prefixed.ts';
import type { BandwidthShare } from './bandwidth.ts';
import { GuestConnection } from './guest-connection.ts';
import { type GuestMessage, MAX_BODY_BYTES, MAX_CONNECTIONS, parseGuestMessage } from './messages.ts';

const PROGRAM = '/sandgate/egress';
const START_TIMEOUT_MS = 20_000;
const RELEASE_TIMEOUT_MS = 10_000;
const FIRST_RESTART_DELAY_MS = 50;
const MAX_RESTART_DELAY_MS = 2_000;
/** A program that ran for so long is started again at once. */
const STEADY_MS = 10_000;

export interface GuestPortOptions {
  readonly link: GuestLink;
  readonly port: number;
  readonly program?: string;
  readonly bandwidth: BandwidthShare;
  readonly onConnection: (connection: GuestConnection) => void;
}

interface Running {
  readonly channel: Channel;
  readonly decoder: LengthPrefixedDecoder;
  readonly connections: Map<number, GuestConnection>;
}

export class GuestPort {
  readonly #options: GuestPortOptions;
  readonly #stopping = new AbortController();
  #running: Running | undefined;

  private constructor(options: GuestPortOptions) {
    this.#options = options;
  }

  /** Settles when the port listens; undefined when it does not. From then on it is kept there. */
  static async open(options: GuestPortOptions): Promise<GuestPort | undefined> {
    const port = new GuestPort(options);
    if (!(await port.#start())) return undefined;
    void port.#keep();
    return port;
  }

  get connections(): number {
    return this.#running?.connections.size ?? 0;
  }

  /** Cuts every connection. */
  stop(): void {
    this.#stopping.abort();
    this.#drop();
  }

  async #keep(): Promise<void> {
    let delayMs = FIRST_RESTART_DELAY_MS;
    while (!this.#stopping.signal.aborted) {
      const startedAt = performance.now();
      await this.#running?.channel.exited;
      this.#drop();
      delayMs =
        performance.now() - startedAt > STEADY_MS
          ? FIRST_RESTART_DELAY_MS
          : Math.min(delayMs * 2, MAX_RESTART_DELAY_MS);
      await wait(delayMs, undefined, { signal: this.#stopping.signal }).catch(() => undefined);
      if (!this.#stopping.signal.aborted) await this.#start();
    }
  }

  async #start(): Promise<boolean> {
    const { link, port, program = PROGRAM } = this.#options;
    const { promise: ready, resolve } = Promise.withResolvers<boolean>();
    const early: Uint8Array[] = [];
    let running: Running | undefined;
    const receive = (bytes: Uint8Array): void => {
      if (running === undefined) early.push(bytes);
      else this.#receive(running, bytes, resolve);
    };
    const spawned = await link.spawn({
      argv: [program, String(port)],
      cwd: '/',
      environment: [],
      control: true,
      muted: true,
      onControl: receive,
      timeoutMs: START_TIMEOUT_MS,
    });
    if (!spawned.ok) return false;
    running = {
      channel: spawned.value,
      decoder: new LengthPrefixedDecoder(MAX_BODY_BYTES),
      connections: new Map(),
    };
    this.#running = running;
    for (const bytes of early) receive(bytes);
    void running.channel.exited.then(() => resolve(false));
    if (await ready) return true;
    this.#drop();
    return false;
  }

  #receive(running: Running, bytes: Uint8Array, onReady: (listens: boolean) => void): void {
    if (this.#running !== running) return;
    const { bodies, failure } = running.decoder.push(bytes);
    for (const body of bodies) {
      const message = parseGuestMessage(body);
      if (message?.kind === 'ready') onReady(message.errno === 0);
      else if (message === undefined || !this.#handle(running, message)) {
        this.#drop();
        return;
      }
    }
    if (failure !== undefined) this.#drop();
  }

  /** False for what the program does not do: it is then somebody else's words, and it is started anew. */
  #handle(running: Running, message: Exclude<GuestMessage, { kind: 'ready' }>): boolean {
    const { connections, channel } = running;
    if (message.kind === 'open') {
      if (connections.has(message.connection) || connections.size >= MAX_CONNECTIONS) return false;
      const send = (bytes: Buffer): void => void channel.sendControl(bytes);
      const connection = new GuestConnection(message.connection, send, this.#options.bandwidth);
      // Whoever reads from it learns of its end from the stream itself.
      connection.on('error', () => undefined);
      connections.set(message.connection, connection);
      this.#options.onConnection(connection);
      return true;
    }
    const connection = connections.get(message.connection);
    if (connection === undefined) return false;
    switch (message.kind) {
      case 'data':
        return connection.receiveData(message.bytes);
      case 'credit':
        return connection.receiveCredit(message.bytes);
      case 'end':
        connection.receiveEnd();
        return true;
      case 'closed':
        connections.delete(message.connection);
        connection.receiveClosed();
        return true;
    }
  }

  #drop(): void {
    const running = this.#running;
    if (running === undefined) return;
    this.#running = undefined;
    for (const connection of running.connections.values()) connection.receiveClosed();
    void running.channel.release(RELEASE_TIMEOUT_MS);
  }
}
