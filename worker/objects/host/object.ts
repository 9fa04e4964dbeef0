/** The host object: the control link of one host, its liveness, and commands for sessions without a link. */
import { DurableObject } from 'cloudflare:workers';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import {
  agreedProtocol,
  type ControlLinkUp,
  ControlLinkUpSchema,
  decodeFrame,
  encodeFrame,
  PING_TEXT,
  PONG_TEXT,
} from '../../../shared/frames.ts';
import { MAX_FRAME_BYTES } from '../../../shared/limits.ts';
import { isErrorCode } from '../../../shared/problem.ts';
import { configurationOf } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import { HostIdentitySchema, readIdentity } from '../../links/identity.ts';
import { commandFrames } from '../command-frames.ts';
import { CONTROL_LINK_RATE, FrameRate } from '../frame-rate.ts';
import { CLOSE, isProof, newChallenge } from '../link-proof.ts';
import { logInfo, logWarning, messageOf } from '../log.ts';
import type { HostReport } from '../pool/port.ts';
import { isSkewed } from './clock-skew.ts';
import { type ControlSocketState, NOTHING_REPORTED, readSocket, writeSocket } from './control-socket.ts';
import { HostedSessions } from './hosted-sessions.ts';
import { livenessOf } from './liveness.ts';
import { isWorthReporting, type Load } from './load-report.ts';
import type { ControlCommand, HostPort, HostStatus } from './port.ts';
import { HostStore } from './store.ts';
import { suspicionDelayMs } from './suspicion.ts';

/** What a host signs for on this link. */
const PURPOSE = 'control';
/** Set before an alarm works, so that one that fails is tried again. */
const ALARM_RETRY_MS = 10_000;
const NEXT_NOTICES_MS = 100;
/** Refusals within the window after which a host is taken for bad. Each costs it a sandbox. */
const MAX_REFUSED_RECEIPTS = 5;
const REFUSED_RECEIPTS_WINDOW_MS = 600_000;

const CLOSE_REASONS: Readonly<Record<number, string>> = {
  [CLOSE.tooFast]: 'too many frames',
  [CLOSE.protocolUnknown]: 'protocol not supported',
};

export class HostObject extends DurableObject<Env> implements HostPort {
  readonly #store: HostStore;
  readonly #sessions: HostedSessions;
  readonly #handled = new WeakMap<WebSocket, Promise<void>>();
  /** Of the host, not of a socket: dialling again gives no new frames. */
  readonly #rate = new FrameRate(CONTROL_LINK_RATE);
  /** What the pool is told comes in order: the end of a former link must not be heard after the begin of the next one. */
  #reported: Promise<void> = Promise.resolve();

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new HostStore(ctx.storage);
    this.#sessions = new HostedSessions(this.#store, env);
    ctx.setWebSocketAutoResponse(new WebSocketRequestResponsePair(PING_TEXT, PONG_TEXT));
  }

  override async fetch(request: Request): Promise<Response> {
    const identity = readIdentity(request, HostIdentitySchema);
    if (identity === undefined) return new Response(null, { status: 400 });
    if (this.#store.revokedAtMs !== null) return new Response(null, { status: 401 });
    const { 0: client, 1: server } = new WebSocketPair();
    this.ctx.acceptWebSocket(server);
    const { nonce, frame } = newChallenge();
    writeSocket(server, {
      ...identity,
      phase: 'challenged',
      nonce,
      epoch: 0,
      linkedAtMs: 0,
      protocol: 1,
      reported: NOTHING_REPORTED,
    });
    server.send(frame);
    return new Response(null, { status: 101, webSocket: client });
  }

  /** One frame after the other: `hello` comes right behind a proof that takes time to check. */
  override async webSocketMessage(socket: WebSocket, message: string | ArrayBuffer): Promise<void> {
    if (!this.#rate.allows(typeof message === 'string' ? 0 : message.byteLength, Date.now())) {
      return this.#refuse(socket, CLOSE.tooFast, 'too many frames');
    }
    const before = this.#handled.get(socket) ?? Promise.resolve();
    const handled = before.then(() => this.#receive(socket, message));
    this.#handled.set(socket, handled);
    await handled;
  }

  async #receive(socket: WebSocket, message: string | ArrayBuffer): Promise<void> {
    const state = readSocket(socket);
    // What was under way when the link was closed still arrives.
    if (state?.phase === 'refused') return;
    if (state === undefined || typeof message === 'string') return this.#violation(socket, 'a text message');
    if (message.byteLength > MAX_FRAME_BYTES) return this.#refuse(socket, CLOSE.tooBig, 'frame too big');
    const frame = decodeFrame(message, ControlLinkUpSchema);
    if (!frame.ok) return this.#violation(socket, frame.detail);
    try {
      await this.#handle(socket, state, frame.value.header);
    } catch (error: unknown) {
      logWarning('control_frame_failed', { host_id: state.hostId, detail: messageOf(error) });
    }
  }

  async #handle(socket: WebSocket, state: ControlSocketState, frame: ControlLinkUp): Promise<void> {
    if (frame.type === 'proof') return this.#proof(socket, state, frame.signature);
    if (frame.type === 'hello') return this.#hello(socket, state, frame);
    if (state.phase !== 'linked') return this.#violation(socket, `${frame.type} before hello`);
    switch (frame.type) {
      case 'load':
        return this.#load(socket, state, frame);
      case 'images': {
        const message = { state: 'connected', images: frame.images, lastSeenAtMs: Date.now() } as const;
        return this.#report(state, { ...state.reported, ...message });
      }
      case 'refused': {
        if (!(await this.#sessions.has(frame))) return this.#violation(socket, 'no session of this edge');
        const code = isErrorCode(frame.code) ? frame.code : 'sandbox_failed';
        const notice = { hostId: state.hostId, epoch: frame.epoch, code, detail: frame.detail };
        return this.#sessions.of(frame).attachRefused(notice);
      }
      case 'destroyed':
        if (!(await this.#sessions.has(frame))) return this.#violation(socket, 'no session of this edge');
        return this.#sessions.of(frame).sandboxDestroyed({ hostId: state.hostId, epoch: frame.epoch });
    }
  }

  async #proof(socket: WebSocket, state: ControlSocketState, signature: string): Promise<void> {
    const { origin } = await configurationOf(this.env);
    const proved =
      state.phase === 'challenged' && (await isProof(signature, { ...state, origin, purpose: PURPOSE }));
    if (!proved) return this.#violation(socket, 'the proof does not verify');
    writeSocket(socket, { ...state, phase: 'proved' });
  }

  async #hello(
    socket: WebSocket,
    state: ControlSocketState,
    hello: Extract<ControlLinkUp, { type: 'hello' }>,
  ): Promise<void> {
    if (state.phase !== 'proved' || hello.host_id !== state.hostId) {
      return this.#violation(socket, 'hello out of order or of another host');
    }
    // Its proof may have been on its way to be checked as it was revoked.
    if (this.#store.revokedAtMs !== null) return this.#cut(socket);
    const protocol = agreedProtocol(hello.protocol);
    if (protocol === undefined) {
      return this.#refuse(socket, CLOSE.protocolUnknown, `protocol ${hello.protocol} is not spoken here`);
    }
    const nowMs = Date.now();
    const epoch = this.#store.beginEpoch(state);
    for (const other of this.ctx.getWebSockets()) {
      if (other !== socket && readSocket(other)?.phase === 'linked') other.close(CLOSE.normal, 'replaced');
    }
    const { sandboxes: capacity } = hello.capacity;
    const skewed = isSkewed(hello.host_time_ms, nowMs);
    if (skewed)
      logWarning('host_clock_skew', { host_id: state.hostId, host_time_ms: hello.host_time_ms ?? 0 });
    const { sandboxes = 0 } = hello;
    const reported = { atMs: nowMs, sandboxes, capacity, degraded: false, skewed };
    writeSocket(socket, { ...state, phase: 'linked', epoch, linkedAtMs: nowMs, protocol, reported });
    const { signedKeySet } = await configurationOf(this.env);
    const optional = {
      ...(hello.host_time_ms === undefined ? {} : { edge_time_ms: Date.now() }),
      ...(protocol >= 2 ? { protocol } : {}),
    };
    socket.send(encodeFrame({ type: 'welcome', key_set: signedKeySet, epoch, ...optional }));
    if (this.#store.isDraining()) {
      this.#tellDrain(true);
      this.ctx.waitUntil(this.#sessions.move());
    }
    const { agent_version } = hello;
    logInfo('host_connected', { host_id: state.hostId, epoch, agent_version, protocol });
    await this.#watch(nowMs);
    const { images } = hello;
    const message = { state: 'connected', images, traits: traitsOf(hello), lastSeenAtMs: nowMs } as const;
    await this.#report(state, { ...reported, ...message });
  }

  async #load(
    socket: WebSocket,
    state: ControlSocketState,
    frame: Extract<ControlLinkUp, { type: 'load' }>,
  ): Promise<void> {
    const nowMs = Date.now();
    await this.#takeOwnWish(state, frame.draining ?? false);
    const load: Load = {
      sandboxes: frame.sandboxes,
      capacity: frame.capacity.sandboxes,
      degraded: frame.degraded,
      skewed: isSkewed(frame.host_time_ms, nowMs),
    };
    if (!isWorthReporting(load, state.reported, nowMs)) return;
    writeSocket(socket, { ...state, reported: { ...load, atMs: nowMs } });
    await this.#report(state, { state: 'connected', ...load, images: null, lastSeenAtMs: nowMs });
  }

  async drain(draining: boolean): Promise<void> {
    this.#store.setDraining(draining);
    this.#tellDrain(draining);
    if (draining) this.ctx.waitUntil(this.#sessions.move());
  }

  /** `sandgate-host drain` on the machine: the same as an operator's word here, for as long as its agent says so. */
  async #takeOwnWish({ hostId, pool }: ControlSocketState, draining: boolean): Promise<void> {
    if (draining === this.#store.isDrainingItself()) return;
    this.#store.setDrainingItself(draining);
    logInfo('host_drains_itself', { host_id: hostId, draining });
    // An operator of the edge who wants the same has said so to the pool.
    if (!draining && this.#store.isDraining()) return;
    try {
      await this.env.POOL.getByName(pool).markHost({ hostId, faults: { draining } });
    } catch (error: unknown) {
      // It is full for the pool all the same.
      logWarning('drain_not_marked', { host_id: hostId, detail: messageOf(error) });
    }
    if (draining) this.ctx.waitUntil(this.#sessions.move());
  }

  /** A host that does not know the word is kept from new sessions by its pool alone. */
  #tellDrain(draining: boolean): void {
    const socket = this.#linked();
    if (socket === undefined || (readSocket(socket)?.protocol ?? 1) < 2) return;
    socket.send(encodeFrame({ type: 'drain', draining }));
  }

  async attach(command: ControlCommand): Promise<Outcome<null>> {
    const socket = this.#linked();
    if (socket === undefined) return failure('no_host_available', 'the host is not connected');
    this.#store.addSession({ tenant: command.tenant, session_id: command.sessionId });
    return this.#send(socket, command);
  }

  async destroy(command: ControlCommand): Promise<Outcome<null>> {
    const socket = this.#linked();
    if (socket === undefined) return failure('no_host_available', 'the host is not connected');
    return this.#send(socket, command);
  }

  async revoke(host: { hostId: string; pool: string }): Promise<Outcome<null>> {
    this.#store.revoke(host, Date.now());
    for (const socket of this.ctx.getWebSockets()) this.#cut(socket);
    logInfo('host_revoked', { host_id: host.hostId });
    await this.ctx.storage.setAlarm(Date.now());
    return success(null);
  }

  async revokedAtMs(): Promise<Outcome<number | null>> {
    return success(this.#store.revokedAtMs);
  }

  /** Nothing more of it is taken, and that it is gone is known. */
  #cut(socket: WebSocket): void {
    const state = readSocket(socket);
    if (state !== undefined) writeSocket(socket, { ...state, phase: 'refused' });
    socket.close(CLOSE.revoked, 'revoked');
  }

  async forget(session: { tenant: string; sessionId: string }): Promise<void> {
    this.#store.removeSession({ tenant: session.tenant, session_id: session.sessionId });
  }

  async receiptRefused(): Promise<void> {
    const record = this.#store.host();
    if (record === undefined) return;
    const nowMs = Date.now();
    const refusals = this.#store.addRefusedReceipt(nowMs, nowMs - REFUSED_RECEIPTS_WINDOW_MS);
    if (refusals < MAX_REFUSED_RECEIPTS) return;
    logWarning('host_receipts_refused', { host_id: record.host_id, refusals });
    await this.env.POOL.getByName(record.pool).distrustHost({ hostId: record.host_id });
    this.#store.clearRefusedReceipts();
  }

  async status(): Promise<HostStatus> {
    const socket = this.#linked();
    const linkedAtMs = socket === undefined ? undefined : readSocket(socket)?.linkedAtMs;
    return {
      connected: linkedAtMs !== undefined,
      connectedForMs: linkedAtMs === undefined ? null : Date.now() - linkedAtMs,
    };
  }

  override async webSocketClose(socket: WebSocket): Promise<void> {
    await this.#disconnected(socket);
  }

  override async webSocketError(socket: WebSocket): Promise<void> {
    await this.#disconnected(socket);
  }

  async #disconnected(socket: WebSocket): Promise<void> {
    const state = readSocket(socket);
    const record = this.#store.host();
    // A socket that was replaced says nothing about the host.
    if (state?.phase !== 'linked' || record === undefined || state.epoch < record.epoch) return;
    const nowMs = Date.now();
    this.#store.setDisconnected(nowMs);
    logInfo('host_disconnected', { host_id: state.hostId, epoch: state.epoch });
    const delayMs = suspicionDelayMs(this.#store.hostsOfPool(), Math.random);
    // Should this object be lost meanwhile, the alarm of its watch finds the same.
    if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
    const now = this.#store.host();
    // The host has linked again meanwhile, and that is what the pool is told; or it was revoked.
    if (now?.epoch !== state.epoch || now.state === 'dead') return;
    await this.#watch(Date.now(), state.reported);
  }

  override async alarm(): Promise<void> {
    const record = this.#store.host();
    if (record === undefined) return;
    const nowMs = Date.now();
    await this.ctx.storage.setAlarm(nowMs + ALARM_RETRY_MS);
    const next = record.state === 'dead' ? null : await this.#watch(nowMs);
    if (next !== null) return;
    const { isLeft, isMoreAtOnce } = await this.#sessions.tellLoss(record.host_id);
    if (!isLeft) await this.ctx.storage.deleteAlarm();
    else if (isMoreAtOnce) await this.ctx.storage.setAlarm(Date.now() + NEXT_NOTICES_MS);
  }

  /** Judges the host's liveness, tells the pool of a change, and sets the alarm for the next look. `unlinked`: what was told of a link that ended. */
  async #watch(nowMs: number, unlinked: Load = NOTHING_REPORTED): Promise<number | null> {
    const record = this.#store.host();
    if (record === undefined) return null;
    const socket = this.#linked();
    const state = socket === undefined ? undefined : readSocket(socket);
    const lastSeenMs = this.#lastSeenMs(socket, state) ?? record.disconnected_at ?? nowMs;
    // A link that went with the edge itself was never said to be closed.
    if (socket === undefined && record.disconnected_at === null) this.#store.setDisconnected(nowMs);
    const liveness = livenessOf(lastSeenMs, socket !== undefined, nowMs);
    if (liveness.checkAtMs !== null)
      await this.ctx.storage.setAlarm(Math.max(liveness.checkAtMs, nowMs + 1000));
    if (this.#store.host()?.epoch !== record.epoch) return liveness.checkAtMs;
    if (liveness.state !== record.state) {
      this.#store.setState(liveness.state);
      if (liveness.state === 'dead') socket?.close(CLOSE.internal, 'no heartbeat');
      const { sandboxes, capacity, degraded, skewed } = state?.reported ?? unlinked;
      const load = { sandboxes, capacity, degraded, skewed };
      logInfo('host_state', { host_id: record.host_id, state: liveness.state });
      await this.#report(
        { hostId: record.host_id, pool: record.pool },
        { state: liveness.state, ...load, images: null, lastSeenAtMs: lastSeenMs },
      );
    }
    return liveness.checkAtMs;
  }

  #lastSeenMs(socket: WebSocket | undefined, state: ControlSocketState | undefined): number | undefined {
    if (socket === undefined || state === undefined) return undefined;
    const pongAtMs = this.ctx.getWebSocketAutoResponseTimestamp(socket)?.getTime() ?? 0;
    return Math.max(pongAtMs, state.linkedAtMs, state.reported.atMs);
  }

  #linked(): WebSocket | undefined {
    let newest: { socket: WebSocket; epoch: number } | undefined;
    for (const socket of this.ctx.getWebSockets()) {
      const state = readSocket(socket);
      if (state?.phase !== 'linked' || socket.readyState !== WebSocket.OPEN) continue;
      if (newest === undefined || state.epoch > newest.epoch) newest = { socket, epoch: state.epoch };
    }
    return newest?.socket;
  }

  #send(socket: WebSocket, command: ControlCommand): Outcome<null> {
    try {
      for (const frame of commandFrames(command.grant, command.payload)) socket.send(frame);
    } catch {
      return failure('no_host_available', 'the control link broke');
    }
    return success(null);
  }

  async #report(host: { hostId: string; pool: string }, report: Omit<HostReport, 'hostId'>): Promise<void> {
    const { state, sandboxes, capacity, degraded, skewed, images, traits, lastSeenAtMs } = report;
    const message = {
      hostId: host.hostId,
      state,
      sandboxes,
      capacity,
      degraded,
      skewed,
      images,
      traits,
      lastSeenAtMs,
    };
    const reported = this.#reported.then(() => this.env.POOL.getByName(host.pool).reportHost(message));
    this.#reported = reported
      .then(({ hosts }) => this.#store.setHostsOfPool(hosts))
      .catch((error: unknown) => {
        logWarning('pool_report_failed', { host_id: host.hostId, detail: messageOf(error) });
      });
    await this.#reported;
  }

  #violation(socket: WebSocket, detail: string): void {
    this.#refuse(socket, CLOSE.violation, detail);
  }

  #refuse(socket: WebSocket, code: number, detail: string): void {
    const state = readSocket(socket);
    if (state?.phase === 'refused') return;
    logWarning('control_link_violation', { host_id: state?.hostId, detail });
    socket.close(code, CLOSE_REASONS[code] ?? 'protocol violation');
    // The host is gone as if it had closed the link itself, but nothing more of it is taken.
    if (state !== undefined) {
      this.ctx.waitUntil(this.#disconnected(socket));
      writeSocket(socket, { ...state, phase: 'refused' });
    }
  }
}

/** Undefined for a host that restores no snapshots. */
function traitsOf(hello: Extract<ControlLinkUp, { type: 'hello' }>): HostReport['traits'] {
  const { runsc_version, runsc_platform, cpu_features_sha256, guest_sha256 } = hello;
  return cpu_features_sha256 === undefined
    ? undefined
    : { runsc_version, runsc_platform, cpu_features_sha256, guest_sha256 };
}
