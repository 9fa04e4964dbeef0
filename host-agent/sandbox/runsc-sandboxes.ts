/** Sandboxes on gVisor: admits, starts, finds again and removes them. */

import { randomBytes } from 'node:crypto';
import { readFile, statfs } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { dirname } from 'node:path';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../../shared/limits.ts';
import { RESTORE_TIMEOUT_MS } from '../../shared/snapshot.ts';
import { HostBandwidth } from '../egress/bandwidth.ts';
import { HostBudget } from '../egress/host-budget.ts';
import { refusedByHost } from '../egress/policy.ts';
import { EGRESS_VARIABLES, openEgress } from '../egress/sandbox-egress.ts';
import { DEFAULT_EGRESS_SETTINGS, type EgressSettings } from '../egress/settings.ts';
import type { RootFile } from '../images/root/root-file.ts';
import type { Image } from '../images/store.ts';
import { watchImages } from '../images/watch.ts';
import type { PoolSettings } from '../pool/settings.ts';
import { type WarmKind, WarmPool } from '../pool/warm-pool.ts';
import { Strays } from '../watchdog/strays.ts';
import { admit, availableMemory, limitsExceeded } from './admission.ts';
import { goOnFrom } from './checkpoint/restore.ts';
import { type Engine, offeredImages, openEngine, type RunscSandboxesOptions } from './engine.ts';
import { findHeld, type HeldSandbox } from './held/find-held.ts';
import type { SandboxOwner } from './held/held-state.ts';
import { Launcher } from './launcher.ts';
import type {
  RestoredSandbox,
  RestoreRequest,
  Sandbox,
  SandboxConfig,
  Sandboxes,
  SandboxRuntimeFacts,
} from './port.ts';
import { DEFAULT_REST_AFTER_MS } from './program-rest.ts';
import { removeLeftovers } from './reconcile.ts';
import type { RunscSandbox } from './sandbox.ts';
import { BASE_ENVIRONMENT } from './spec.ts';
import { StartGate } from './start-gate.ts';
import { startThawGuard, type ThawGuard } from './thaw-guard.ts';

export type { RunscSandboxesOptions } from './engine.ts';

const NO_POOL: PoolSettings = { floor: 0, ceiling: 0, parallel: 1, image: '', imports: [] };
const EVICTED_AT_ONCE = 2;
const SANDBOX_ID = /^[a-z0-9][a-z0-9-]{0,63}$/;

export class RunscSandboxes implements Sandboxes {
  readonly facts: SandboxRuntimeFacts;
  readonly #options: RunscSandboxesOptions;
  readonly #engine: Engine;
  readonly #launcher: Launcher;
  readonly #egressBudget: HostBudget;
  readonly #egressBandwidth: HostBandwidth;
  /** Memory limits of the sandboxes that are starting, by id. */
  readonly #starting = new Map<string, number>();
  /** Those of them that a session waits for. */
  readonly #startsInFlight = new Set<Promise<unknown>>();
  /** A start waits now and then, for the disk or another process: one more than there are CPUs keeps them busy. */
  readonly #startGate = new StartGate(availableParallelism() + 1);
  readonly #strays: Strays;
  /** Of a former agent, by session. */
  readonly #held = new Map<string, { owner: SandboxOwner; sandbox: RunscSandbox }>();
  readonly #thawGuard: ThawGuard;
  readonly #pool: WarmPool<RunscSandbox>;
  #imagesListener: (() => void) | undefined;
  #unwatchImages: (() => void) | undefined;
  #stopped = false;

  private constructor(options: RunscSandboxesOptions, engine: Engine) {
    this.#options = options;
    this.#engine = engine;
    this.#launcher = new Launcher(engine, options.log, options.restAfterMs ?? DEFAULT_REST_AFTER_MS);
    this.#egressBudget = new HostBudget(this.#egress.maxConnections);
    this.#egressBandwidth = new HostBandwidth(this.#egress);
    this.#strays = new Strays(engine, options.log);
    this.#thawGuard = startThawGuard(
      engine.cgroups.thawFiles,
      { bundlesDir: engine.bundles.dir, stateDir: dirname(engine.bundles.dir) },
      options.heldForS,
    );
    this.facts = engine.facts;
    this.#pool = new WarmPool({
      ...(options.pool ?? NO_POOL),
      usualKind: () => this.#usualKind(),
      make: (kind) => this.#makeAhead(kind),
      discard: (sandbox) => this.#discard(sandbox),
      isUsable: (sandbox) => sandbox.answers(),
      mayMake: () => this.#startsInFlight.size === 0,
    });
  }

  static async open(options: RunscSandboxesOptions): Promise<Outcome<RunscSandboxes>> {
    const engine = await openEngine(options);
    return engine.ok ? success(new RunscSandboxes(options, engine.value)) : engine;
  }

  async reconcile(): Promise<{ removed: string[] }> {
    const held = await findHeld(this.#engine);
    const ids = new Set(held.map(({ sandboxId }) => sandboxId));
    const removed = await removeLeftovers(this.#engine, (id) => ids.has(id));
    this.#thawGuard.takeOffice();
    for (const sandbox of held) if (!this.#join(sandbox)) removed.push(sandbox.sandboxId);
    await Promise.all(removed.filter((id) => ids.has(id)).map((id) => this.#launcher.removeEnded(id)));
    await this.#pool.start();
    this.#unwatchImages ??= watchImages(this.#options.imagesDir, () => this.#offerImages());
    return { removed };
  }

  takeHeld({ sessionId, tenant, epoch }: Parameters<NonNullable<Sandboxes['takeHeld']>>[0]) {
    const held = this.#held.get(sessionId);
    if (held === undefined || held.owner.tenant !== tenant || held.owner.epoch !== epoch) return undefined;
    this.#held.delete(sessionId);
    return held;
  }

  async endHeld(): Promise<void> {
    const held = [...this.#held.values()];
    this.#held.clear();
    await Promise.all(held.map(({ sandbox }) => this.#discard(sandbox)));
  }

  /** False where it has ended meanwhile. */
  #join(held: HeldSandbox): boolean {
    const { owner } = held.state;
    try {
      this.#held.set(owner.sessionId, { owner, sandbox: this.#launcher.join(held) });
      return true;
    } catch (error: unknown) {
      const detail = error instanceof Error ? error.message : 'unknown';
      this.#options.log.warn({
        event: 'sandbox_lost',
        sandbox_id: held.sandboxId,
        reason: 'crashed',
        detail,
      });
      return false;
    }
  }

  onImagesChange(listener: () => void): void {
    this.#imagesListener = listener;
  }

  /** Sandboxes that are ready and belong to no session, and those on their way there. */
  get pooled(): { ready: number; starting: number } {
    return { ready: this.#pool.readyCount, starting: this.#pool.makingCount };
  }

  async start(config: SandboxConfig): Promise<Outcome<Sandbox>> {
    const image = await this.#imageFor(config);
    if (!image.ok) return image;
    const handedOver = await this.#track(this.#handOverReady(config, image.value));
    return handedOver ?? this.#admitted(config, () => this.#start(config, image.value));
  }

  async restore(config: SandboxConfig, from: RestoreRequest): Promise<Outcome<RestoredSandbox>> {
    if (from.state.guest !== this.#engine.guest) {
      return failure('snapshot_mismatch', 'the checkpoint was made with other programs in the sandbox');
    }
    const image = await this.#imageFor(config);
    if (!image.ok) return image;
    const root = await this.#rootOf(config.sandboxId, image.value);
    if (!root.ok) return root;
    if (from.state.root !== root.value.id) {
      return failure('snapshot_mismatch', 'the image of the checkpoint was built of other files here');
    }
    return this.#admitted(config, () => this.#restore(config, image.value, { ...from, root: root.value }));
  }

  async #imageFor(config: SandboxConfig): Promise<Outcome<Image>> {
    if (!SANDBOX_ID.test(config.sandboxId)) throw new TypeError('a sandbox id was expected');
    const { network } = config;
    const refused = network ? refusedByHost(network.rules, this.#egress) : undefined;
    if (refused !== undefined) return refused;
    const exceeded = limitsExceeded(config.limits, this.#options.caps);
    if (exceeded !== undefined) return exceeded;
    const { images } = this.#engine;
    const image = await images.findByDigest(config.imageDigest);
    if (image.ok) void images.markUsed(image.value);
    return image;
  }

  async #admitted<Made>(config: SandboxConfig, make: () => Promise<Outcome<Made>>): Promise<Outcome<Made>> {
    const admitted = await this.#admitMakingRoom(config);
    if (!admitted.ok) return admitted;
    try {
      return await this.#track(this.#startGate.run(make));
    } finally {
      this.#starting.delete(config.sandboxId);
    }
  }

  /** Ends what is on the machine under this agent's name and belongs to none of its sandboxes. */
  removeStrays(): Promise<string[]> {
    return this.#strays.sweep((id) => this.#launcher.live.has(id) || this.#starting.has(id));
  }

  async stop(): Promise<void> {
    await this.#end(() => true);
    await this.#engine.streamKeeper.end();
    await this.#thawGuard.stop();
    await this.#engine.cgroups.removeParent();
  }

  /** The guard stays for as long as a successor may take to come. */
  async leave(): Promise<void> {
    await this.#end((sandbox) => !sandbox.isAtRest);
    if (this.#launcher.live.size === 0) await this.stop();
    else this.#engine.streamKeeper.leave();
  }

  async #end(isToEnd: (sandbox: RunscSandbox) => boolean): Promise<void> {
    this.#stopped = true;
    this.#unwatchImages?.();
    const pool = this.#pool.stop();
    await Promise.allSettled(this.#startsInFlight);
    const ending = [...this.#launcher.live.values()].filter(isToEnd);
    await Promise.all(ending.map((sandbox) => sandbox.destroy()));
    await pool;
  }

  async #track<T>(starting: Promise<T>): Promise<T> {
    this.#startsInFlight.add(starting);
    return await starting.finally(() => {
      this.#startsInFlight.delete(starting);
      this.#pool.refill();
    });
  }

  /** What nobody uses yet gives way to a session. */
  async #admitMakingRoom(config: SandboxConfig): Promise<Outcome<null>> {
    const admitted = await this.#admit(config);
    if (admitted.ok || admitted.code !== 'host_full' || this.#stopped) return admitted;
    const evicted = await this.#pool.evict(EVICTED_AT_ONCE);
    return evicted === 0 ? admitted : this.#admit(config);
  }

  async #admit({ sandboxId, limits }: Pick<SandboxConfig, 'sandboxId' | 'limits'>): Promise<Outcome<null>> {
    const meminfo = await readFile('/proc/meminfo', 'utf8');
    const disk = await statfs(this.#engine.bundles.dir);
    if (this.#stopped) return failure('host_full', 'the host is stopping');
    const { live } = this.#launcher;
    if (live.has(sandboxId) || this.#starting.has(sandboxId)) {
      return failure('sandbox_failed', 'a sandbox with this id lives already');
    }
    const admitted = admit({
      limits,
      caps: this.#options.caps,
      sandboxes: new Set([...live.keys(), ...this.#starting.keys()]).size,
      capacity: this.#options.capacity,
      availableMemoryBytes: availableMemory(meminfo),
      promisedMemoryBytes: [...this.#starting.values()].reduce((sum, bytes) => sum + bytes, 0),
      availableDiskBytes: disk.bavail * disk.bsize,
    });
    if (admitted.ok) this.#starting.set(sandboxId, limits.memory_bytes);
    return admitted;
  }

  async #offerImages(): Promise<void> {
    const { images, roots } = this.#engine;
    void roots.prepare(images, () => !this.#stopped).catch(() => undefined);
    const offered = await offeredImages(images);
    if (JSON.stringify(offered) === JSON.stringify(this.facts.images)) return;
    this.facts.images = offered;
    this.#options.log.info({ event: 'images_changed', count: offered.length });
    this.#imagesListener?.();
    this.#pool.keepOnly(({ imageDigest }) => offered.some(({ digest }) => digest === imageDigest));
  }

  /** What is wrong with it may name places of this host. */
  async #rootOf(sandboxId: string, image: Image): Promise<Outcome<RootFile>> {
    const root = await this.#engine.roots.of(image);
    return root.ok ? root : this.#launcher.notStarted(sandboxId, root.detail);
  }

  async #start(config: SandboxConfig, image: Image): Promise<Outcome<Sandbox>> {
    const { sandboxId, limits } = config;
    const environment = environmentOf(config, image.environment);
    const root = await this.#rootOf(sandboxId, image);
    if (!root.ok) return root;
    const launched = await this.#launcher.launch({ sandboxId, root: root.value, limits, environment });
    if (!launched.ok) return launched;
    const ready = await this.#readyForSession(config, launched.value);
    if (ready.ok) void launched.value.warm();
    return ready;
  }

  /** Its way out is there and shut until it goes on: what was made for nothing has reached nobody. */
  async #restore(
    config: SandboxConfig,
    { environment: own }: Image,
    from: RestoreRequest & { root: RootFile },
  ): Promise<Outcome<RestoredSandbox>> {
    const { sandboxId, limits } = config;
    const environment = environmentOf(config, own);
    const restored = await this.#launcher.restore({ sandboxId, root: from.root, limits, environment }, from);
    if (!restored.ok) return failure('restore_failed', restored.detail);
    const { sandbox } = restored.value;
    const { state, isCopy, generation, sinkOf, programOf, endsCall } = from;
    const agreed = Promise.withResolvers<void>();
    const goes = await goOnFrom(restored.value, state, {
      isCopy,
      generation,
      sinkOf,
      programOf,
      endsCall,
      makeReady: async () => !this.#stopped && (await this.#openEgress(config, sandbox, agreed.promise)),
      timeoutMs: RESTORE_TIMEOUT_MS,
    });
    if (!goes.ok) {
      this.#launcher.notStarted(sandboxId, goes.detail);
      return failure('restore_failed', 'the sandbox did not go on');
    }
    const { calls, goOn } = goes.value;
    return success({
      sandbox,
      calls,
      goOn: () => {
        agreed.resolve();
        goOn();
        void sandbox.warm();
      },
    });
  }

  async #handOverReady(config: SandboxConfig, image: Image): Promise<Outcome<Sandbox> | undefined> {
    const ready = this.#stopped ? undefined : await this.#pool.take(config);
    return ready === undefined ? undefined : this.#handOver(config, image, ready);
  }

  /** Its identity is its own already: it was booted for one session and nothing ever ran in it. */
  async #handOver(
    config: SandboxConfig,
    { environment }: Image,
    sandbox: RunscSandbox,
  ): Promise<Outcome<Sandbox>> {
    try {
      this.#launcher.promote(sandbox.id, config.limits);
    } catch (error: unknown) {
      // It died just now, and its control group with it.
      await sandbox.destroy();
      return this.#launcher.notStarted(sandbox.id, error instanceof Error ? error.message : 'unknown');
    }
    const detail = `in place of ${config.sandboxId}`;
    this.#options.log.info({ event: 'sandbox_handed_over', sandbox_id: sandbox.id, detail });
    sandbox.handOver(environmentOf(config, environment));
    return this.#readyForSession(config, sandbox);
  }

  async #readyForSession(config: SandboxConfig, sandbox: RunscSandbox): Promise<Outcome<Sandbox>> {
    const opened = !this.#stopped && (await this.#openEgress(config, sandbox));
    if (opened && !this.#stopped) return success(sandbox);
    await sandbox.destroy();
    return this.#launcher.notStarted(
      sandbox.id,
      this.#stopped ? 'the host is stopping' : 'the proxy port did not open',
    );
  }

  async #makeAhead({ imageDigest, limits }: WarmKind): Promise<RunscSandbox | undefined> {
    const sandboxId = `sbx-${randomBytes(8).toString('hex')}`;
    try {
      const image = await this.#engine.images.findByDigest(imageDigest);
      const root = image.ok ? await this.#rootOf(sandboxId, image.value) : undefined;
      if (!image.ok || !root?.ok || !(await this.#admit({ sandboxId, limits })).ok) return undefined;
      const launched = await this.#launcher.launch({
        sandboxId,
        root: root.value,
        limits,
        environment: environmentOf({ environment: {} }, image.value.environment),
        ahead: { imports: this.#options.pool?.imports ?? [] },
      });
      if (!launched.ok) return undefined;
      await launched.value.warm();
      return launched.value;
    } catch (error: unknown) {
      const detail = error instanceof Error ? error.message : 'it could not be made';
      this.#launcher.notStarted(sandboxId, detail);
      return undefined;
    } finally {
      this.#starting.delete(sandboxId);
    }
  }

  /** Never rejects. */
  async #discard(sandbox: RunscSandbox): Promise<void> {
    await sandbox.destroy().catch((error: unknown) => {
      const detail = error instanceof Error ? error.message : 'unknown';
      this.#options.log.error({ event: 'sandbox_destroy_failed', sandbox_id: sandbox.id, detail });
    });
  }

  async #usualKind(): Promise<WarmKind | undefined> {
    const { pool } = this.#options;
    if (pool === undefined) return undefined;
    const image = await this.#engine.images.findByName(pool.image);
    const limits = { ...DEFAULT_RESOURCE_LIMITS };
    if (!image.ok || limitsExceeded(limits, this.#options.caps) !== undefined) return undefined;
    return { imageDigest: image.value.digest, limits };
  }

  /** Before anything of the session runs, so that nothing of it can have the port first. */
  async #openEgress(
    { network }: SandboxConfig,
    sandbox: RunscSandbox,
    shutUntil?: Promise<void>,
  ): Promise<boolean> {
    if (network === undefined || network === null) return true;
    const { link } = sandbox;
    const [settings, budget] = [this.#egress, this.#egressBudget];
    const { log } = this.#options;
    const bandwidth = this.#egressBandwidth;
    const egress = await openEgress({ link, network, settings, budget, bandwidth, log, shutUntil });
    if (egress === undefined) return false;
    sandbox.connected(egress);
    void sandbox.lost.then(() => egress.stop());
    return true;
  }

  get #egress(): EgressSettings {
    return this.#options.egress ?? DEFAULT_EGRESS_SETTINGS;
  }
}

function environmentOf(
  { environment, network }: Pick<SandboxConfig, 'environment' | 'network'>,
  ofImage: Image['environment'],
): string[] {
  const proxy = network ? EGRESS_VARIABLES : {};
  return Object.entries({ ...BASE_ENVIRONMENT, ...ofImage, ...proxy, ...environment }).map(
    ([name, value]) => `${name}=${value}`,
  );
}
