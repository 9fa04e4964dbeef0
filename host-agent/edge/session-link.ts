/** The link of one sandbox to the object of its session: numbered frames up, acknowledged; granted commands down. */
import {
  encodeFrameHead,
  OLDEST_PROTOCOL_VERSION,
  type SessionLinkDown,
  SessionLinkDownSchema,
  type TransferDown,
  type TransferUp,
} from '../../shared/frames.ts';
import { newId } from '../../shared/ids.ts';
import { LINK_WINDOW_BYTES, OUTPUT_FRAME_BYTES } from '../../shared/limits.ts';
import { ToolNameSchema } from '../../shared/tool.ts';
import type { UpFrame, Uplink } from '../execution/uplink.ts';
import type { StoredFrame } from '../journal/state.ts';
import type { Log } from '../logging/log.ts';
import type { TransferWire } from '../transfers/wire.ts';
import { type Command, CommandAssembler } from './command-assembler.ts';
import { type CloseCode, LinkSocket, type LinkTiming } from './link-socket.ts';
import { ResendBuffer } from './resend-buffer.ts';

/** What an execution may send though others, whose readers are slow, have filled the window. */
const EXECUTION_SHARE_BYTES = 2 * OUTPUT_FRAME_BYTES;
/** `finished` with its receipt and other control frames do not wait for the window, and an execution not beyond its share. */
const RESERVE_BYTES = 256 * 1024 + ToolNameSchema.options.length * EXECUTION_SHARE_BYTES;
const HEADER_ALLOWANCE_BYTES = 512;
/** Commands that came and were not carried out yet; an edge that sends more breaks the protocol. */
const MAX_WAITING_COMMANDS = 256;
const MAX_WAITING_COMMAND_BYTES = 8 * 1024 * 1024;
const NO_PAYLOAD = new Uint8Array(0);

export interface SessionLinkOptions {
  sessionId: string;
  epoch: number;
  url: string;
  headers: () => Record<string, string>;
  prove: (nonce: string) => Promise<string>;
  onCommand: (command: Command) => Promise<void>;
  /** False where the frame breaks the protocol. */
  onTransfer: (frame: TransferDown, payload: Uint8Array) => boolean;
  onDown: () => void;
  /** The edge has a higher epoch, or no such session: nothing of this sandbox counts any more. */
  onFenced: () => void;
  log: Log;
  timing?: Partial<LinkTiming>;
}

export class SessionLink implements Uplink, TransferWire {
  readonly #options: SessionLinkOptions;
  readonly #streamId = newId('lnk');
  readonly #buffer = new ResendBuffer({
    windowBytes: LINK_WINDOW_BYTES,
    reserveBytes: RESERVE_BYTES,
    shareBytes: EXECUTION_SHARE_BYTES,
  });
  readonly #assembler = new CommandAssembler();
  readonly #socket: LinkSocket<SessionLinkDown>;
  #commands: Promise<void> = Promise.resolve();
  #waitingCommands = 0;
  #waitingCommandBytes = 0;
  #protocol = OLDEST_PROTOCOL_VERSION;
  /** Since when the edge does not welcome this link; undefined while it is up. */
  #downSinceMs: number | undefined = performance.now();

  constructor(options: SessionLinkOptions) {
    this.#options = options;
    this.#socket = new LinkSocket({
      name: `session ${options.sessionId}`,
      url: options.url,
      headers: options.headers,
      schema: SessionLinkDownSchema,
      prove: options.prove,
      hello: (protocol) => ({
        type: 'hello',
        protocol,
        session_id: options.sessionId,
        epoch: options.epoch,
        stream_id: this.#streamId,
        lanes: true,
        ...(protocol > OLDEST_PROTOCOL_VERSION ? { constraints: true, workspaces: true } : {}),
      }),
      onFrame: (header, payload) => this.#receive(header, payload),
      bundles: true,
      onDown: () => {
        this.#assembler.reset();
        this.#downSinceMs ??= performance.now();
        options.onDown();
      },
      log: options.log,
      timing: options.timing,
    });
  }

  connect(): void {
    this.#socket.connect();
  }

  close(code?: CloseCode): void {
    this.#socket.close(code);
  }

  /** After `close`: what still waits for room goes on. */
  abandon(): void {
    this.#buffer.abandon();
  }

  get isOverfull(): boolean {
    return this.#buffer.isOverfull;
  }

  /** What the edge agreed to last: nothing later is to be sent. */
  get protocol(): number {
    return this.#protocol;
  }

  get downForMs(): number {
    return this.#downSinceMs === undefined ? 0 : performance.now() - this.#downSinceMs;
  }

  send(frame: UpFrame, payload: Uint8Array = NO_PAYLOAD): number {
    const seq = this.#buffer.nextSeq();
    const header = { ...frame, epoch: this.#options.epoch, seq };
    const head = encodeFrameHead(header);
    this.#buffer.push({ header, head, payload });
    this.#socket.send(head, payload);
    return seq;
  }

  /** Outside of the numbered stream: bounded by the window of its transfer, and lost with the link. */
  sendTransfer(frame: TransferUp, payload: Uint8Array = NO_PAYLOAD): boolean {
    return this.#socket.isEstablished && this.#socket.send(encodeFrameHead(frame), payload);
  }

  waitForRoom(payloadBytes: number, executionId: string, signal?: AbortSignal): Promise<void> {
    return this.#buffer.waitForRoom(payloadBytes + HEADER_ALLOWANCE_BYTES, executionId, signal);
  }

  hasRoom(payloadBytes: number, executionId: string): boolean {
    return this.#buffer.hasRoom(payloadBytes + HEADER_ALLOWANCE_BYTES, executionId);
  }

  whenAcknowledged(seq: number): Promise<void> {
    return this.#buffer.whenAcknowledged(seq);
  }

  unacknowledgedOf(executionId: string): StoredFrame[] {
    return this.#buffer.unacknowledgedOf(executionId);
  }

  #receive(header: SessionLinkDown, payload: Uint8Array): string | undefined {
    switch (header.type) {
      case 'challenge':
        return 'a second challenge';
      case 'welcome':
        return this.#welcomed(header);
      case 'ack':
        if (!this.#socket.isEstablished) return 'an ack before the welcome';
        if (header.epoch !== this.#options.epoch) return undefined;
        return this.#buffer.acknowledge(header.seq, header.beyond)
          ? undefined
          : 'an ack of a frame that was not sent';
      case 'command': {
        if (!this.#socket.isEstablished) return 'a command before the welcome';
        const assembled = this.#assembler.add(header, payload);
        if ('violation' in assembled) return assembled.violation;
        return 'command' in assembled ? this.#queueCommand(assembled.command) : undefined;
      }
      case 'file_data':
      case 'file_taken':
      case 'file_end':
      case 'file_cancel':
        return this.#options.onTransfer(header, payload) ? undefined : 'bytes of a transfer out of order';
      case 'fenced':
        this.#options.onFenced();
        return undefined;
    }
  }

  #welcomed(welcome: Extract<SessionLinkDown, { type: 'welcome' }>): string | undefined {
    if (this.#socket.isEstablished) return 'a second welcome';
    if (welcome.epoch !== this.#options.epoch) return 'a welcome of another epoch';
    // An object that restarted may know of fewer than it acknowledged: what is still held is sent either way.
    if (!this.#buffer.acknowledge(welcome.acked_seq)) return 'a welcome that acknowledges what was not sent';
    this.#protocol = welcome.protocol ?? OLDEST_PROTOCOL_VERSION;
    this.#buffer.limitWindow(welcome.window_bytes);
    this.#socket.established();
    this.#downSinceMs = undefined;
    for (const { head, payload } of this.#buffer.unacknowledged()) this.#socket.send(head, payload);
    return undefined;
  }

  #queueCommand(command: Command): string | undefined {
    this.#waitingCommands += 1;
    this.#waitingCommandBytes += command.payload.length;
    if (
      this.#waitingCommands > MAX_WAITING_COMMANDS ||
      this.#waitingCommandBytes > MAX_WAITING_COMMAND_BYTES
    ) {
      this.#waitingCommands -= 1;
      this.#waitingCommandBytes -= command.payload.length;
      return 'more commands than can wait';
    }
    this.#commands = this.#commands
      .then(() => this.#options.onCommand(command))
      .catch((error: unknown) => {
        const detail = error instanceof Error ? error.message : 'unknown';
        this.#options.log.error({ event: 'command_fault', session_id: this.#options.sessionId, detail });
      })
      .then(() => {
        this.#waitingCommands -= 1;
        this.#waitingCommandBytes -= command.payload.length;
      });
    return undefined;
  }
}
