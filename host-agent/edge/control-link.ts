/** The control link: who this host is and has, which keys it believes, and the sandboxes it is told to make or end. */
import { hash } from 'node:crypto';
import * as z from 'zod';
import type { Failure, Outcome } from '../../shared/errors.ts';
import {
  type ControlLinkDown,
  ControlLinkDownSchema,
  type ControlLinkUp,
  encodeFrame,
  OLDEST_PROTOCOL_VERSION,
} from '../../shared/frames.ts';
import type { GrantClaims } from '../../shared/grant.ts';
import { SessionIdSchema, TenantSchema } from '../../shared/ids.ts';
import { MAX_CLOCK_SKEW_S } from '../../shared/limits.ts';
import { unverifiedClaims } from '../execution/unverified-claims.ts';
import type { Log } from '../logging/log.ts';
import type { SandboxRuntimeFacts } from '../sandbox/port.ts';
import type { Attachments } from './attachments.ts';
import { type Command, CommandAssembler } from './command-assembler.ts';
import type { LinkTarget } from './edge-links.ts';
import type { KeyRing } from './key-ring.ts';
import { type LinkRefusal, LinkRefusals } from './link-refusal.ts';
import { type CloseCode, LinkSocket, type LinkTiming } from './link-socket.ts';
import { CONTROL_BASE_DELAY_MS } from './reconnect-delay.ts';

/** Attaches take a second each; an edge that sends more at once than any host holds breaks the protocol. */
const MAX_COMMANDS_AT_ONCE = 1024;
const MAX_WAITING_FRAMES = 1024;
const MANY_SANDBOXES = 32;
const LOAD_INTERVAL_MS = 1_000;

export interface ControlLinkOptions {
  hostId: string;
  agentVersion: string;
  facts: SandboxRuntimeFacts;
  /** Where this host makes sandboxes of snapshots. */
  cpuFeaturesSha256?: string | undefined;
  target: LinkTarget;
  keyRing: KeyRing;
  verifyGrant: (token: string) => Promise<Outcome<GrantClaims>>;
  attachments: Attachments;
  isDegraded: () => boolean;
  onUp: () => void;
  onHeard: (sentAtMs: number) => void;
  log: Log;
  timing?: Partial<LinkTiming>;
}

export class ControlLink {
  readonly #options: ControlLinkOptions;
  readonly #socket: LinkSocket<ControlLinkDown>;
  readonly #refusals: LinkRefusals;
  readonly #assembler = new CommandAssembler();
  #frames: Promise<void> = Promise.resolve();
  #waitingFrames = 0;
  #connectionCount = 0;
  /** What both ends of this connection speak. */
  #protocol = OLDEST_PROTOCOL_VERSION;
  #commandsAtOnce = 0;
  #offeredImages: SandboxRuntimeFacts['images'] | undefined;
  #edgeClock: { timeMs: number; atMs: number } | undefined;
  #loadTimer: NodeJS.Timeout | undefined;
  #isLoadDue = false;

  constructor(options: ControlLinkOptions) {
    this.#options = options;
    this.#refusals = new LinkRefusals(options.target, options.log);
    this.#socket = new LinkSocket({
      name: 'control',
      url: options.target.url,
      headers: options.target.headers,
      prove: options.target.prove,
      schema: ControlLinkDownSchema,
      hello: (protocol) => this.#hello(protocol),
      onFrame: (header, payload) => this.#receive(header, payload),
      onDown: () => {
        this.#connectionCount += 1;
        this.#assembler.reset();
      },
      onUnopened: () => this.#refusals.ask(),
      onHeartbeat: () => this.reportLoad(),
      onHeard: options.onHeard,
      baseDelayMs: CONTROL_BASE_DELAY_MS,
      log: options.log,
      timing: options.timing,
    });
  }

  /** How far the clock of this host is ahead of the edge's, by what that said at the last welcome; null where it does not tell. */
  get clockAheadMs(): number | null {
    if (this.#edgeClock === undefined) return null;
    const { timeMs, atMs } = this.#edgeClock;
    return Math.round(Date.now() - (timeMs + performance.now() - atMs));
  }

  /** Why the edge opens no link; undefined where it does, or did not say. */
  get refusal(): LinkRefusal | undefined {
    return this.#refusals.current;
  }

  get isUp(): boolean {
    return this.#socket.isEstablished;
  }

  connect(): void {
    this.#socket.connect();
  }

  close(code?: CloseCode): void {
    clearTimeout(this.#loadTimer);
    this.#refusals.stop();
    this.#socket.close(code);
  }

  /** A large host has many changes: it tells where they have led, once a second. The last places of a small one count at once. */
  reportLoad(): void {
    if (this.#options.facts.capacity < MANY_SANDBOXES) {
      this.#tellLoad();
      return;
    }
    if (this.#loadTimer !== undefined) {
      this.#isLoadDue = true;
      return;
    }
    this.#tellLoad();
    this.#loadTimer = setTimeout(() => {
      this.#loadTimer = undefined;
      if (this.#isLoadDue) this.reportLoad();
    }, LOAD_INTERVAL_MS).unref();
  }

  #tellLoad(): void {
    this.#isLoadDue = false;
    const { attachments, isDegraded } = this.#options;
    this.#send({
      type: 'load',
      sandboxes: attachments.count,
      capacity: this.#capacity,
      degraded: isDegraded(),
      ...(attachments.isToBeEmpty && this.#protocol > OLDEST_PROTOCOL_VERSION ? { draining: true } : {}),
      host_time_ms: Date.now(),
    });
  }

  /** A host that takes no more is a full one: every edge understands that. */
  get #capacity(): { sandboxes: number } {
    const { attachments, facts } = this.#options;
    return { sandboxes: attachments.isDraining ? attachments.count : facts.capacity };
  }

  /** Nothing where the edge knows them; a link that is not up yet tells them when it is. */
  offerImages(): void {
    const { images } = this.#options.facts;
    if (!this.isUp || images === this.#offeredImages) return;
    this.#offeredImages = images;
    this.#send({ type: 'images', images });
  }

  #hello(protocol: number): ControlLinkUp {
    const { attachments, facts, hostId, agentVersion, cpuFeaturesSha256 } = this.#options;
    const { guestSha256 } = facts;
    const isOldest = protocol <= OLDEST_PROTOCOL_VERSION;
    this.#offeredImages = facts.images;
    return {
      type: 'hello',
      protocol,
      host_id: hostId,
      agent_version: agentVersion,
      runsc_version: facts.runscVersion.slice(0, 64),
      runsc_platform: facts.runscPlatform.slice(0, 64),
      ...(cpuFeaturesSha256 === undefined ? {} : { cpu_features_sha256: cpuFeaturesSha256 }),
      ...(guestSha256 === undefined || isOldest ? {} : { guest_sha256: guestSha256 }),
      images: facts.images,
      capacity: this.#capacity,
      // The load behind it is no news then, and the pool of this host hears of its return once.
      ...(isOldest ? {} : { sandboxes: attachments.count }),
      host_time_ms: Date.now(),
    };
  }

  /** One frame after the other: a key set is checked and on disk before the commands behind it are looked at. */
  #receive(header: ControlLinkDown, payload: Uint8Array): string | undefined {
    if (this.#waitingFrames >= MAX_WAITING_FRAMES) return 'more frames than can wait';
    this.#waitingFrames += 1;
    const connection = this.#connectionCount;
    this.#frames = this.#frames.then(async () => {
      this.#waitingFrames -= 1;
      if (connection !== this.#connectionCount) return;
      const violation = await this.#take(header, payload);
      if (violation !== undefined && connection === this.#connectionCount) this.#socket.violate(violation);
    });
    return undefined;
  }

  async #take(header: ControlLinkDown, payload: Uint8Array): Promise<string | undefined> {
    switch (header.type) {
      case 'challenge':
        return 'a second challenge';
      case 'welcome':
      case 'key_set':
        if (this.#socket.isEstablished === (header.type === 'welcome')) return `${header.type} out of order`;
        if (header.type === 'welcome') {
          this.#protocol = header.protocol ?? OLDEST_PROTOCOL_VERSION;
          this.#compareClocks(header.edge_time_ms);
        }
        return this.#takeKeySet(header.key_set);
      case 'drain':
        this.#options.attachments.drainForEdge(header.draining);
        return undefined;
      case 'command': {
        if (!this.#socket.isEstablished) return 'a command before the welcome';
        const assembled = this.#assembler.add(header, payload);
        if ('violation' in assembled) return assembled.violation;
        return 'command' in assembled ? this.#startCommand(assembled.command) : undefined;
      }
    }
  }

  /** Further apart than grants allow, every one would be refused: the edge sends no sessions, and here it is said why. */
  #compareClocks(edgeTimeMs: number | undefined): void {
    if (edgeTimeMs === undefined) return;
    const aheadMs = Date.now() - edgeTimeMs;
    this.#edgeClock = { timeMs: edgeTimeMs, atMs: performance.now() };
    if (Math.abs(aheadMs) <= MAX_CLOCK_SKEW_S * 1_000) return;
    const detail = `the clock of this host is ${Math.round(aheadMs / 1_000)} s ahead of the edge's`;
    this.#options.log.error({ event: 'clock_skew', detail });
  }

  /** The first one of a connection makes the link usable. */
  async #takeKeySet(token: string): Promise<string | undefined> {
    const { keyRing, log, onUp } = this.#options;
    const accepted = await keyRing.accept(token);
    if (!accepted.ok) {
      log.error({ event: 'key_set_refused', code: accepted.code, detail: accepted.detail });
      return accepted.code;
    }
    log.info({ event: 'key_set_accepted', version: accepted.value.version });
    if (this.#socket.isEstablished) return undefined;
    this.#socket.established();
    this.#refusals.forget();
    this.reportLoad();
    this.offerImages();
    onUp();
    return undefined;
  }

  #startCommand(command: Command): string | undefined {
    if (this.#commandsAtOnce >= MAX_COMMANDS_AT_ONCE) return 'more commands at once than can be';
    this.#commandsAtOnce += 1;
    this.#carryOut(command)
      .catch((error: unknown) => {
        const detail = error instanceof Error ? error.message : 'unknown';
        this.#options.log.error({ event: 'command_fault', detail });
      })
      .finally(() => {
        this.#commandsAtOnce -= 1;
      });
    return undefined;
  }

  async #carryOut({ grant, payload }: Command): Promise<void> {
    const { attachments, verifyGrant, log } = this.#options;
    const verified = await verifyGrant(grant);
    if (!verified.ok) {
      const named = NamedSchema.safeParse(unverifiedClaims(grant));
      if (named.success) return this.#refuse(named.data, verified);
      log.warn({ event: 'grant_refused', code: verified.code, detail: verified.detail });
      return;
    }
    const claims = verified.value;
    const refused = await this.#act(claims, { grant, payload }, attachments);
    if (refused !== undefined) return this.#refuse(claims, refused);
    if (claims.act === 'destroy') {
      this.#send({ type: 'destroyed', session_id: claims.sid, tenant: claims.tenant, epoch: claims.epoch });
    }
  }

  async #act(
    claims: GrantClaims,
    { grant, payload }: Command,
    attachments: Attachments,
  ): Promise<Failure | undefined> {
    if (claims.act === 'attach') return attachments.attach(claims, payload, hash('sha256', grant));
    if (claims.act === 'destroy') return attachments.destroy(claims, payload);
    return {
      ok: false,
      code: 'grant_invalid',
      detail: `${claims.act} is not granted on the control link`,
    };
  }

  #refuse(named: z.infer<typeof NamedSchema>, refused: Failure): void {
    const { sid, tenant, epoch, act } = named;
    const { code, detail } = refused;
    this.#options.log.warn({ event: 'grant_refused', session_id: sid, epoch, act, code, detail });
    this.#send({ type: 'refused', session_id: sid, tenant, epoch, code, detail: detail.slice(0, 1024) });
  }

  #send(frame: ControlLinkUp): void {
    this.#socket.send(encodeFrame(frame));
  }
}

/** What a grant that does not verify says of itself: enough to name it in the answer, and for nothing else. */
const NamedSchema = z.object({
  sid: SessionIdSchema,
  tenant: TenantSchema,
  epoch: z.int().min(1),
  act: z.string().max(16),
});
