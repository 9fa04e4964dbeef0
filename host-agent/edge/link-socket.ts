/**
 * One WebSocket to the edge that comes back by itself: proof of the host's key, heartbeat, bounded frames in, bounded
 * buffer out, and growing jittered delays between attempts.
 */
import { WebSocket } from 'undici';
import type * as z from 'zod';
import { utf8 } from '../../shared/encoding.ts';
import {
  ChallengeFrameSchema,
  CLOSE_PROTOCOL_UNKNOWN,
  CLOSE_REVOKED,
  decodeFrame,
  encodeFrame,
  OLDEST_PROTOCOL_VERSION,
  PING_TEXT,
  PONG_TEXT,
  PROTOCOL_VERSION,
} from '../../shared/frames.ts';
import { HEARTBEAT_INTERVAL_MS, HEARTBEAT_JITTER, HOST_SUSPECT_MS } from '../../shared/limits.ts';
import type { Log } from '../logging/log.ts';
import { LinkTransport } from './link-transport.ts';
import { Outbox } from './outbox.ts';
import { reconnectDelayMs } from './reconnect-delay.ts';

/** From the upgrade to the edge's welcome. */
const ESTABLISH_TIMEOUT_MS = 15_000;
/** A link that lived this long is lost, not refused: the next attempt is made at once. */
const SETTLED_AFTER_MS = 5_000;
/** What is handed to the socket is bounded by the link's window already; beyond this something is wrong. */
const MAX_BUFFERED_BYTES = 16 * 1024 * 1024;
/** Codes below 4000 other than 1000 are not an application's to send; these mirror 1001 and 1008. */
export const CLOSE_NORMAL = 1000;
export const CLOSE_GOING_AWAY = 4001;
const CLOSE_VIOLATION = 4008;
/** What an edge of a former version closes a link with whose `hello` offers a later one. */
const CLOSED_AS_VIOLATION = 1008;
const NO_PAYLOAD = new Uint8Array(0);
export type CloseCode = typeof CLOSE_NORMAL | typeof CLOSE_GOING_AWAY;

export interface LinkSocketOptions<Down> {
  /** For the log only. */
  name: string;
  url: string;
  headers: () => Record<string, string>;
  schema: z.ZodType<Down>;
  prove: (nonce: string) => Promise<string>;
  /** Offers this version of the protocol. */
  hello: (protocol: number) => object;
  /** Gives a reason where the frame breaks the protocol: the link is closed then. */
  onFrame: (header: Down, payload: Uint8Array) => string | undefined;
  onDown: () => void;
  /** The edge opened no WebSocket. Why, a client of one is not told: neither a status nor a body. */
  onUnopened?: () => void;
  /** Attempts are spread over so long or longer. */
  baseDelayMs?: number;
  /** Whether the edge takes several frames in one message. */
  bundles?: boolean;
  onHeartbeat?: () => void;
  /** The edge has heard what was sent at this moment of the monotonic clock. */
  onHeard?: (sentAtMs: number) => void;
  log: Log;
  timing?: Partial<LinkTiming>;
}

export interface LinkTiming {
  heartbeatMs: number;
  pongTimeoutMs: number;
  settledAfterMs: number;
  random: () => number;
}

interface Connection {
  socket: WebSocket;
  transport: LinkTransport;
  outbox: Outbox;
  phase: 'connecting' | 'challenged' | 'proved' | 'established';
  establishedAtMs: number;
  timers: Set<NodeJS.Timeout>;
  pongTimer: NodeJS.Timeout | undefined;
  /** When the edge was sent what it has not answered yet: `hello`, then pings. */
  sentAtMs: number[];
}

export class LinkSocket<Down> {
  readonly #options: LinkSocketOptions<Down>;
  readonly #timing: LinkTiming;
  #connection: Connection | undefined;
  #retryTimer: NodeJS.Timeout | undefined;
  #failedAttempts = 0;
  #offeredProtocol = PROTOCOL_VERSION;
  #closed = false;

  constructor(options: LinkSocketOptions<Down>) {
    this.#options = options;
    this.#timing = {
      heartbeatMs: HEARTBEAT_INTERVAL_MS,
      pongTimeoutMs: HOST_SUSPECT_MS,
      settledAfterMs: SETTLED_AFTER_MS,
      random: Math.random,
      ...options.timing,
    };
  }

  get isEstablished(): boolean {
    return this.#connection?.phase === 'established';
  }

  connect(): void {
    if (this.#closed || this.#connection !== undefined) return;
    const { url, headers } = this.#options;
    const transport = new LinkTransport();
    const socket = new WebSocket(url, { headers: headers(), dispatcher: transport.dispatcher });
    socket.binaryType = 'arraybuffer';
    const connection: Connection = {
      socket,
      transport,
      outbox: new Outbox({
        bundles: this.#options.bundles ?? false,
        write: (parts) => {
          // Nothing may follow a close frame, ours or the answer to theirs.
          if (socket.readyState === WebSocket.OPEN) transport.send(parts);
        },
      }),
      phase: 'connecting',
      establishedAtMs: 0,
      timers: new Set(),
      pongTimer: undefined,
      sentAtMs: [],
    };
    this.#connection = connection;
    const isCurrent = (): boolean => this.#connection === connection;
    this.#after(connection, ESTABLISH_TIMEOUT_MS, () => {
      if (connection.phase !== 'established') this.#drop('no welcome in time', CLOSE_GOING_AWAY);
    });
    socket.addEventListener('message', ({ data }: { data: unknown }) => {
      if (isCurrent()) this.#receive(connection, data);
    });
    // An `error` is always followed by `close`, which is handled there.
    socket.addEventListener('error', () => {});
    socket.addEventListener('close', ({ code }) => {
      if (!isCurrent()) return;
      if (connection.phase === 'proved') this.#offerOther(code);
      if (code === CLOSE_REVOKED)
        this.#options.log.error({ event: 'host_revoked', link: this.#options.name });
      if (connection.phase === 'connecting') this.#options.onUnopened?.();
      this.#drop(`closed with ${code}`);
    });
  }

  /** The owner got its welcome: frames may be sent, and the heartbeat begins. */
  established(): void {
    const connection = this.#connection;
    if (connection?.phase !== 'proved') return;
    connection.phase = 'established';
    connection.establishedAtMs = performance.now();
    this.#options.log.info({ event: 'link_up', link: this.#options.name });
    this.#heard(connection);
    this.#beat(connection);
  }

  /** False while the link is not established: the frame was not sent. */
  send(head: Uint8Array, payload: Uint8Array = NO_PAYLOAD): boolean {
    const connection = this.#connection;
    if (connection?.phase !== 'established') return false;
    const { outbox, transport } = connection;
    const waitingBytes = transport.bufferedBytes + outbox.waitingBytes;
    if (waitingBytes + head.length + payload.length > MAX_BUFFERED_BYTES) {
      this.#drop('the edge does not read', CLOSE_GOING_AWAY);
      return false;
    }
    outbox.add(head, payload);
    return true;
  }

  /** The owner found after the fact that the edge broke the protocol. */
  violate(reason: string): void {
    this.#drop(reason, CLOSE_VIOLATION);
  }

  /** For good. */
  close(code: CloseCode = CLOSE_NORMAL): void {
    this.#closed = true;
    clearTimeout(this.#retryTimer);
    if (this.#connection !== undefined) this.#drop('closed by this host', code);
  }

  #receive(connection: Connection, data: unknown): void {
    const violation =
      typeof data === 'string' ? this.#receiveText(connection, data) : this.#receiveFrame(connection, data);
    if (violation !== undefined) this.#drop(violation, CLOSE_VIOLATION);
  }

  #receiveText(connection: Connection, text: string): string | undefined {
    if (text !== PONG_TEXT) return 'a text message that is not pong';
    clearTimeout(connection.pongTimer);
    connection.pongTimer = undefined;
    this.#heard(connection);
    return undefined;
  }

  /** Answers come in the order of what they answer. */
  #heard(connection: Connection): void {
    const sentAtMs = connection.sentAtMs.shift();
    if (sentAtMs !== undefined) this.#options.onHeard?.(sentAtMs);
  }

  /** An edge that does not know the version which was offered ends the link: next time it is offered the other. */
  #offerOther(code: number): void {
    if (code !== CLOSE_PROTOCOL_UNKNOWN && code !== CLOSED_AS_VIOLATION) return;
    const { log, name } = this.#options;
    log.warn({ event: 'protocol_refused', link: name, version: this.#offeredProtocol });
    this.#offeredProtocol =
      this.#offeredProtocol === PROTOCOL_VERSION ? OLDEST_PROTOCOL_VERSION : PROTOCOL_VERSION;
  }

  #receiveFrame(connection: Connection, data: unknown): string | undefined {
    if (!(data instanceof ArrayBuffer)) return 'a message that is not a frame';
    if (connection.phase === 'connecting') {
      const challenge = decodeFrame(data, ChallengeFrameSchema);
      if (!challenge.ok) return challenge.detail;
      connection.phase = 'challenged';
      this.#answerChallenge(connection, challenge.value.header.nonce).catch(() => {
        if (this.#connection === connection) this.#drop('the proof could not be made', CLOSE_GOING_AWAY);
      });
      return undefined;
    }
    if (connection.phase === 'challenged') return 'a frame before the proof';
    const frame = decodeFrame(data, this.#options.schema);
    if (!frame.ok) return frame.detail;
    return this.#options.onFrame(frame.value.header, frame.value.payload);
  }

  async #answerChallenge(connection: Connection, nonce: string): Promise<void> {
    const signature = await this.#options.prove(nonce);
    if (this.#connection !== connection) return;
    connection.socket.send(encodeFrame({ type: 'proof', signature }));
    connection.sentAtMs.push(performance.now());
    connection.socket.send(encodeFrame(this.#options.hello(this.#offeredProtocol)));
    connection.phase = 'proved';
  }

  #beat(connection: Connection): void {
    const { heartbeatMs, pongTimeoutMs, random } = this.#timing;
    const delayMs = heartbeatMs * (1 + HEARTBEAT_JITTER * (2 * random() - 1));
    this.#after(connection, delayMs, () => {
      connection.sentAtMs.push(performance.now());
      connection.socket.send(PING_TEXT);
      connection.pongTimer ??= this.#after(connection, pongTimeoutMs, () => {
        this.#drop('no pong', CLOSE_GOING_AWAY);
      });
      this.#options.onHeartbeat?.();
      this.#beat(connection);
    });
  }

  #after(connection: Connection, delayMs: number, act: () => void): NodeJS.Timeout {
    const timer = setTimeout(() => {
      connection.timers.delete(timer);
      if (this.#connection === connection) act();
    }, delayMs);
    connection.timers.add(timer);
    return timer;
  }

  /** A link that was up is lost, not refused: the edge is back soon. One that never lives long is not hammered. */
  #attemptsAfter({ phase, establishedAtMs }: Connection): number {
    if (phase !== 'established') return this.#failedAttempts + 1;
    return performance.now() - establishedAtMs >= this.#timing.settledAfterMs ? 0 : 1;
  }

  /** Ends this connection, without waiting for the other side, and plans the next unless closed for good. */
  #drop(reason: string, closeCode?: number): void {
    const connection = this.#connection;
    if (connection === undefined) return;
    this.#connection = undefined;
    for (const timer of connection.timers) clearTimeout(timer);
    const { log, name } = this.#options;
    log.info({ event: 'link_down', link: name, reason, attempt: this.#failedAttempts });
    connection.outbox.flush();
    closeQuietly(connection.socket, closeCode, reason);
    connection.transport.endSoon();
    this.#failedAttempts = this.#attemptsAfter(connection);
    if (!this.#closed) {
      const { baseDelayMs } = this.#options;
      const delayMs = reconnectDelayMs(this.#failedAttempts, this.#timing.random, baseDelayMs);
      clearTimeout(this.#retryTimer);
      this.#retryTimer = setTimeout(() => this.connect(), delayMs);
    }
    this.#options.onDown();
  }
}

/** A close reason may have 123 bytes (RFC 6455 section 5.5). */
const MAX_CLOSE_REASON_BYTES = 123;

function closeQuietly(socket: WebSocket, code: number | undefined, reason: string): void {
  try {
    if (code === undefined) socket.close();
    else socket.close(code, utf8(reason).length <= MAX_CLOSE_REASON_BYTES ? reason : '');
  } catch {
    // Already closed, or not open yet: undici fails the handshake by itself.
  }
}
