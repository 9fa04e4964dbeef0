/**
 * The session's link: the WebSocket that its host dialled. At most one socket is the current one; what is known of a
 * socket lies in its attachment, so the link goes on after hibernation.
 */
import * as z from 'zod';
import { framesOf } from '../../../../shared/bundle.ts';
import {
  agreedProtocol,
  decodeFrame,
  encodeFrame,
  PING_TEXT,
  PONG_TEXT,
  type SequencedUp,
  type SessionLinkDown,
  type SessionLinkUp,
  SessionLinkUpSchema,
  type TransferUp,
} from '../../../../shared/frames.ts';
import { HOST_DEAD_MS, LINK_WINDOW_BYTES, MAX_FRAME_BYTES } from '../../../../shared/limits.ts';
import { MAX_PROGRAM_CALLS } from '../../../../shared/program.ts';
import { MAX_TRANSFERS, MAX_WATCHES, TRANSFER_WINDOW_BYTES } from '../../../../shared/transfer.ts';
import { type SessionLinkIdentity, SessionLinkIdentitySchema } from '../../../links/identity.ts';
import { FrameRate, SESSION_LINK_RATE } from '../../frame-rate.ts';
import { CLOSE, isProof, newChallenge } from '../../link-proof.ts';
import { logInfo, logWarning, messageOf } from '../../log.ts';
import type { SessionRow } from '../rows/session-row.ts';

const AttachmentSchema = SessionLinkIdentitySchema.extend({
  phase: z.enum(['challenged', 'proved', 'linked', 'refused']),
  nonce: z.string(),
  linkedAtMs: z.number(),
  /** What its host and this edge both speak. */
  protocol: z.int().default(1),
  /** Whether the host runs executions of different tools at the same time. */
  lanes: z.boolean().default(false),
  constraints: z.boolean().default(false),
  workspaces: z.boolean().default(false),
});
type SocketState = z.infer<typeof AttachmentSchema>;
type Hello = Extract<SessionLinkUp, { type: 'hello' }>;
/** Frames beyond those that are acknowledged in a row: all but those of some executions. */
export type SelectiveAck = NonNullable<Extract<SessionLinkDown, { type: 'ack' }>['beyond']>;

export interface LinkHandlers {
  /** The stream continues or begins; gives the highest frame of it that is kept. */
  streamBegins(streamId: string): number;
  linkUp(): void;
  linkDown(): void;
  frame(frame: SequencedUp, payload: Uint8Array): void | Promise<void>;
  /** False where the frame breaks the rules of its transfer. */
  transfer(frame: TransferUp, payload: Uint8Array): boolean;
}

/** Frames that wait while one before them is being checked; the host's window bounds them, unless it cheats. */
const MAX_INBOX_BYTES =
  2 * LINK_WINDOW_BYTES + (MAX_TRANSFERS + MAX_WATCHES + MAX_PROGRAM_CALLS / 4) * TRANSFER_WINDOW_BYTES;

export class SessionLink {
  readonly #context: DurableObjectState;
  readonly #origin: string;
  readonly #row: SessionRow;
  readonly #handlers: LinkHandlers;
  readonly #states = new WeakMap<WebSocket, SocketState>();
  readonly #rates = new WeakMap<WebSocket, FrameRate>();
  #current: WebSocket | undefined;
  #inbox: { socket: WebSocket; bytes: Uint8Array }[] = [];
  #inboxBytes = 0;
  #busy = false;

  constructor(context: DurableObjectState, origin: string, row: SessionRow, handlers: LinkHandlers) {
    this.#context = context;
    this.#origin = origin;
    this.#row = row;
    this.#handlers = handlers;
    context.setWebSocketAutoResponse(new WebSocketRequestResponsePair(PING_TEXT, PONG_TEXT));
    this.#current = this.#linkedSockets().at(-1);
  }

  /** Of the current link: no frame of a later version may be sent on it. */
  get protocol(): number {
    return (this.#current === undefined ? undefined : this.#state(this.#current)?.protocol) ?? 1;
  }

  get isUp(): boolean {
    return this.#current !== undefined;
  }

  get hasLanes(): boolean {
    return this.#current !== undefined && this.#state(this.#current)?.lanes === true;
  }

  /** Grants with constraints are read by hosts that say so alone; for others the edge's own look at a call is the only one. */
  get looksAtConstraints(): boolean {
    return this.#current !== undefined && this.#state(this.#current)?.constraints === true;
  }

  /** Whether the host can be asked to store the workspace beside a checkpoint. */
  get storesWorkspaces(): boolean {
    return this.#current !== undefined && this.#state(this.#current)?.workspaces === true;
  }

  accept(identity: SessionLinkIdentity): Response {
    const { 0: client, 1: server } = new WebSocketPair();
    this.#context.acceptWebSocket(server);
    const { nonce, frame } = newChallenge();
    const state = {
      phase: 'challenged',
      nonce,
      linkedAtMs: 0,
      protocol: 1,
      lanes: false,
      constraints: false,
      workspaces: false,
    } as const;
    this.#write(server, { ...identity, ...state });
    server.send(frame);
    return new Response(null, { status: 101, webSocket: client });
  }

  /** Sends on the current socket; false where there is none. */
  send(frames: readonly Uint8Array[]): boolean {
    if (this.#current === undefined) return false;
    try {
      for (const frame of frames) this.#current.send(frame);
      return true;
    } catch {
      return false;
    }
  }

  acknowledge(seq: number, beyond?: SelectiveAck): void {
    const frame: SessionLinkDown = { type: 'ack', epoch: this.#row.record.epoch, seq, beyond };
    this.send([encodeFrame(frame)]);
  }

  /** The last frame was a repetition, or of something that does not run. */
  tookUseless(): void {
    if (this.#current !== undefined) this.#rateOf(this.#current).useless();
  }

  /** A peer that vanished without a word leaves a socket that looks open: its heartbeat tells. */
  dropIfSilent(nowMs: number): void {
    const socket = this.#current;
    if (socket === undefined) return;
    const pongAtMs = this.#context.getWebSocketAutoResponseTimestamp(socket)?.getTime();
    if (pongAtMs === undefined || nowMs - pongAtMs < HOST_DEAD_MS) return;
    logWarning('session_link_silent', { silent_ms: nowMs - pongAtMs });
    this.#drop(socket, CLOSE.internal);
  }

  /** Tells the host that its sandbox is no longer wanted, and ends every link. */
  fence(): void {
    for (const socket of this.#context.getWebSockets()) {
      if (this.#state(socket)?.phase === 'linked') this.#fence(socket);
    }
    this.#current = undefined;
  }

  /** The same of a host that is trusted with nothing more: also what it has only begun to open. */
  cut(): void {
    for (const socket of this.#context.getWebSockets()) {
      const phase = this.#state(socket)?.phase;
      if (phase !== undefined && phase !== 'refused') this.#fence(socket);
    }
    this.#current = undefined;
  }

  /** Resolves when the frame was dealt with, or was put behind one that takes time. */
  receive(socket: WebSocket, message: string | ArrayBuffer): Promise<void> | undefined {
    // What was under way when the link was closed still arrives, and is worth neither work nor a log line.
    if (this.#state(socket)?.phase === 'refused') return undefined;
    if (typeof message === 'string') return this.#violation(socket, 'a text message');
    if (message.byteLength > MAX_FRAME_BYTES) return this.#drop(socket, CLOSE.tooBig);
    const frames = framesOf(message);
    if (!frames.ok) return this.#violation(socket, frames.detail);
    let working: Promise<void> | undefined;
    for (const frame of frames.value) working = this.#take(socket, frame) ?? working;
    return working;
  }

  #take(socket: WebSocket, frame: Uint8Array): Promise<void> | undefined {
    if (this.#state(socket)?.phase === 'refused') return undefined;
    if (!this.#rateOf(socket).allows(frame.length, Date.now())) {
      return this.#violation(socket, 'too many frames');
    }
    if (!this.#busy) return this.#process(socket, frame);
    this.#inbox.push({ socket, bytes: frame });
    this.#inboxBytes += frame.length;
    if (this.#inboxBytes > MAX_INBOX_BYTES) this.#violation(socket, 'more than the window');
    return undefined;
  }

  closed(socket: WebSocket): void {
    if (socket === this.#current) {
      this.#current = undefined;
      this.#handlers.linkDown();
    }
  }

  /** Frames are taken one after the other; only some take time, and those behind them wait. */
  #process(socket: WebSocket, bytes: Uint8Array): Promise<void> | undefined {
    const working = this.#frame(socket, bytes);
    return working === undefined ? undefined : this.#workThrough(working);
  }

  async #workThrough(first: Promise<void>): Promise<void> {
    this.#busy = true;
    let working: Promise<void> | undefined = first;
    for (;;) {
      try {
        await working;
      } catch (error: unknown) {
        logWarning('frame_failed', { detail: messageOf(error) });
      }
      const next = this.#inbox.shift();
      if (next === undefined) break;
      this.#inboxBytes -= next.bytes.length;
      working = this.#frame(next.socket, next.bytes);
    }
    this.#busy = false;
  }

  #frame(socket: WebSocket, bytes: Uint8Array): Promise<void> | undefined {
    const state = this.#state(socket);
    if (state === undefined || state.phase === 'refused') return;
    const decoded = decodeFrame(bytes, SessionLinkUpSchema);
    if (!decoded.ok) return this.#violation(socket, decoded.detail);
    const { header, payload } = decoded.value;
    if (header.type === 'proof') return this.#proof(socket, state, header.signature);
    if (header.type === 'hello') return this.#hello(socket, state, header);
    if (state.phase !== 'linked') return this.#violation(socket, `${header.type} before hello`);
    if (socket !== this.#current) return;
    if ('transfer_id' in header) {
      if (!this.#handlers.transfer(header, payload)) this.#violation(socket, 'a transfer out of order');
      return;
    }
    try {
      return this.#handlers.frame(header, payload) ?? undefined;
    } catch (error: unknown) {
      logWarning('frame_failed', { type: header.type, detail: messageOf(error) });
    }
  }

  async #proof(socket: WebSocket, state: SocketState, signature: string): Promise<void> {
    const purpose = `session:${state.sessionId}:${state.epoch}`;
    const proved =
      state.phase === 'challenged' && (await isProof(signature, { ...state, origin: this.#origin, purpose }));
    if (proved) this.#write(socket, { ...state, phase: 'proved' });
    else this.#violation(socket, 'the proof does not verify');
  }

  #hello(socket: WebSocket, state: SocketState, hello: Hello): undefined {
    const record = this.#row.maybe;
    if (state.phase !== 'proved') return this.#violation(socket, 'hello out of order');
    const protocol = agreedProtocol(hello.protocol);
    if (protocol === undefined) {
      logWarning('session_link_protocol', { session_id: state.sessionId, protocol: hello.protocol });
      return this.#drop(socket, CLOSE.protocolUnknown);
    }
    if (hello.session_id !== state.sessionId || hello.epoch !== state.epoch) {
      return this.#violation(socket, 'hello of another session or epoch than the upgrade');
    }
    if (record === undefined || !this.#row.isLive || hello.epoch < record.epoch) {
      logInfo('session_link_fenced', { session_id: state.sessionId, epoch: hello.epoch });
      return this.#fence(socket);
    }
    const isForeign =
      state.hostId !== record.facts.hostId ||
      (record.hostKeyX !== null && record.hostKeyX !== state.publicKeyX) ||
      hello.epoch > record.epoch;
    if (isForeign) return this.#violation(socket, 'a host or an epoch that this session does not have');
    this.#link(socket, { ...state, protocol }, hello);
  }

  #link(socket: WebSocket, state: SocketState, hello: Hello): undefined {
    for (const other of this.#linkedSockets()) if (other !== socket) this.#retire(other);
    this.#current = socket;
    this.#write(socket, {
      ...state,
      phase: 'linked',
      linkedAtMs: Date.now(),
      lanes: hello.lanes === true,
      constraints: hello.constraints === true,
      workspaces: hello.workspaces === true,
    });
    const ackedSeq = this.#handlers.streamBegins(hello.stream_id);
    this.#row.patch({ hostKeyX: state.publicKeyX, linkDownAtMs: null });
    const welcome: SessionLinkDown = {
      type: 'welcome',
      epoch: hello.epoch,
      acked_seq: ackedSeq,
      window_bytes: LINK_WINDOW_BYTES,
      ...(state.protocol >= 2 ? { protocol: state.protocol } : {}),
    };
    this.send([encodeFrame(welcome)]);
    this.#handlers.linkUp();
  }

  #retire(socket: WebSocket): void {
    const state = this.#state(socket);
    if (state !== undefined) this.#write(socket, { ...state, phase: 'refused' });
    close(socket, CLOSE.normal, 'replaced');
  }

  #fence(socket: WebSocket): undefined {
    const frame: SessionLinkDown = { type: 'fenced', epoch: this.#row.maybe?.epoch ?? 0 };
    try {
      socket.send(encodeFrame(frame));
    } catch {
      // A socket that is closing needs no word.
    }
    this.#retire(socket);
  }

  #violation(socket: WebSocket, detail: string): undefined {
    logWarning('session_link_violation', { session_id: this.#state(socket)?.sessionId, detail });
    this.#drop(socket, CLOSE.violation);
  }

  #drop(socket: WebSocket, code: number): undefined {
    const state = this.#state(socket);
    if (state !== undefined) this.#write(socket, { ...state, phase: 'refused' });
    close(socket, code, 'protocol violation');
    this.closed(socket);
  }

  #rateOf(socket: WebSocket): FrameRate {
    const known = this.#rates.get(socket);
    if (known !== undefined) return known;
    const rate = new FrameRate(SESSION_LINK_RATE);
    this.#rates.set(socket, rate);
    return rate;
  }

  #linkedSockets(): WebSocket[] {
    const linked = this.#context.getWebSockets().flatMap((socket) => {
      const state = this.#state(socket);
      return state?.phase === 'linked' ? [{ socket, atMs: state.linkedAtMs }] : [];
    });
    return linked.sort((left, right) => left.atMs - right.atMs).map(({ socket }) => socket);
  }

  #state(socket: WebSocket): SocketState | undefined {
    const known = this.#states.get(socket);
    if (known !== undefined) return known;
    const state = AttachmentSchema.safeParse(socket.deserializeAttachment()).data;
    if (state !== undefined) this.#states.set(socket, state);
    return state;
  }

  #write(socket: WebSocket, state: SocketState): void {
    socket.serializeAttachment(state);
    this.#states.set(socket, state);
  }
}

function close(socket: WebSocket, code: number, reason: string): void {
  try {
    socket.close(code, reason);
  } catch {
    // Already closed.
  }
}
