/** The agent on one state folder: identity, keys, journal, recovery, and the control link. */
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { type GrantClaims, verifyGrant } from '../../shared/grant.ts';
import type { ResourceLimits } from '../../shared/session.ts';
import { Lateness } from '../execution/lateness.ts';
import { Journal } from '../journal/journal.ts';
import { lockState, probeWritable } from '../journal/state-lock.ts';
import type { Log } from '../logging/log.ts';
import type { Sandboxes } from '../sandbox/port.ts';
import { cpuFeaturesSha256 } from '../snapshots/cpu-features.ts';
import { Snapshots } from '../snapshots/snapshots.ts';
import { Attachments } from './attachments.ts';
import { ControlLink } from './control-link.ts';
import { EdgeLinks } from './edge-links.ts';
import { type HostIdentity, identityOf } from './enrolment.ts';
import { KeyRing } from './key-ring.ts';
import { Lease, type LeaseClocks } from './lease.ts';
import type { LinkRefusal } from './link-refusal.ts';
import { CLOSE_GOING_AWAY, type LinkTiming } from './link-socket.ts';
import { reconnectDelayMs } from './reconnect-delay.ts';
import { verifySignature } from './verify-signature.ts';

export interface AgentOptions {
  hostDir: string;
  edgeUrl: string;
  edgeOrigin: string;
  enrolmentToken: string | undefined;
  agentVersion: string;
  caps: ResourceLimits;
  log: Log;
  /** Made only once this agent holds the state folder alone. */
  openSandboxes: () => Promise<Outcome<Sandboxes>>;
  onJournalWrite?: (durationMs: number, bytes: number) => void;
  /** Of snapshots that lie at the edge; without it, nothing is kept. */
  keptSnapshotBytes?: number;
  /** Of a workspace that is stored beside its checkpoint; without it, none is. */
  maxRescuedBytes?: number;
  timing?: Partial<LinkTiming>;
  abandonAfterMs?: number;
  leaseClocks?: LeaseClocks;
  signal: AbortSignal;
}

export interface Agent {
  hostId: string;
  /** Settles when the control link is up for the first time. */
  ready: Promise<void>;
  readonly isConnected: boolean;
  /** Why the edge opens no link; undefined where it does, or did not say. */
  readonly edgeRefusal: LinkRefusal | undefined;
  readonly isDegraded: boolean;
  /** How far the clock of this host is ahead of the edge's; null where that is not known. */
  readonly clockAheadMs: number | null;
  /** Sandboxes of sessions, those that are being made included. */
  readonly sandboxes: number;
  /** Digests of the images of those sandboxes. */
  readonly imagesInUse: string[];
  /** Of snapshots that lie at the edge. */
  readonly keptSnapshotBytes: number;
  /** While true no new sandbox is taken, and the edge knows. */
  isDraining: boolean;
  stop(options?: StopOptions): Promise<void>;
}

export interface StopOptions {
  /** Waits so long at most for executions that run, or until it is to hurry. */
  patienceMs?: number;
  hurrying?: AbortSignal;
  /** Another agent starts at once: what is at rest is left to it. */
  isSucceeded?: boolean;
}

export async function startAgent(options: AgentOptions): Promise<Outcome<Agent>> {
  const lock = await lockState(options.hostDir);
  if (!lock.ok) return lock;
  const emptied = await emptiedSandboxes(options);
  if (!emptied.ok) {
    await lock.value.release();
    return emptied;
  }
  const sandboxes = emptied.value;
  const identity = await enrolWhenReachable(options);
  if (!identity.ok) {
    await sandboxes.stop();
    await lock.value.release();
    return identity;
  }
  const running = await run(options, sandboxes, identity.value);
  const stop = running.stop.bind(running);
  running.stop = async (how) => {
    await stop(how);
    await (how?.isSucceeded === true && sandboxes.leave !== undefined ? sandboxes.leave() : sandboxes.stop());
    await lock.value.release();
  };
  return success(running);
}

/**
 * What a former agent left must be gone before anything else is made, and even if the edge cannot be reached. It may be
 * what fills the disk, so the folder is judged only afterwards; one that cannot be written explains all else that failed.
 */
async function emptiedSandboxes({ hostDir, log, openSandboxes }: AgentOptions): Promise<Outcome<Sandboxes>> {
  const emptied = await openEmptied().catch((error: unknown) =>
    failure('internal', error instanceof Error ? error.message : 'unknown fault'),
  );
  const writable = await probeWritable(hostDir);
  if (writable.ok) return emptied;
  if (emptied.ok) await emptied.value.stop();
  return writable;

  async function openEmptied(): Promise<Outcome<Sandboxes>> {
    const opened = await openSandboxes();
    if (!opened.ok) return opened;
    const { removed } = await opened.value.reconcile();
    log.info({ event: 'reconciled', count: removed.length });
    return opened;
  }
}

async function run(options: AgentOptions, sandboxes: Sandboxes, identity: HostIdentity): Promise<Agent> {
  const { log, timing, caps } = options;
  const { hostId, keyId, signingKey, edgeOrigin } = identity;
  const journal = await Journal.open(join(options.hostDir, 'journal'), {
    onDegraded: (degraded) => {
      log.error({ event: degraded ? 'journal_degraded' : 'journal_recovered' });
      control.reportLoad();
    },
    onWrite: options.onJournalWrite,
  });
  if (journal.tornBytes > 0) log.warn({ event: 'journal_tail_cut', bytes: journal.tornBytes });
  const keyRing = new KeyRing({ root: identity.rootKey, issuer: edgeOrigin, journal });
  const known = await keyRing.accept(journal.keySet?.token ?? identity.keySet);
  if (!known.ok) log.error({ event: 'key_set_refused', code: known.code, detail: known.detail });
  const verify = async (token: string): Promise<Outcome<GrantClaims>> => {
    const nowS = Math.floor(Date.now() / 1000);
    const keys = keyRing.grantKeys(nowS);
    return verifyGrant(token, { hostId, issuer: edgeOrigin, keys, nowS, verifySignature });
  };
  const lateness = new Lateness();
  const links = new EdgeLinks(options.edgeUrl, identity);
  const { runscVersion, runscPlatform, guestSha256 } = sandboxes.facts;
  const host = {
    hostId,
    runscVersion,
    runscPlatform,
    guestSha256,
    clockAheadMs: () => control.clockAheadMs,
  };
  const snapshots = await Snapshots.open({
    edgeUrl: options.edgeUrl,
    directory: join(options.hostDir, 'snapshots'),
    keptBytes: options.keptSnapshotBytes ?? 0,
    maxWorkspaceBytes: options.maxRescuedBytes ?? 0,
    host,
    cpuFeaturesSha256: await cpuFeaturesSha256(),
  });
  const attachments = new Attachments({
    journal,
    host,
    snapshots,
    signer: { keyId, privateKey: signingKey },
    log,
    verifyGrant: verify,
    lateness,
    links,
    timing,
    abandonAfterMs: options.abandonAfterMs,
    sandboxes,
    caps,
    onChange: () => control.reportLoad(),
  });
  let setReady: () => void = () => {};
  const ready = new Promise<void>((resolve) => {
    setReady = resolve;
  });
  const lease = new Lease({ ...options.leaseClocks, onChange: (state) => attachments.setLease(state) });
  const control = new ControlLink({
    hostId,
    agentVersion: options.agentVersion,
    facts: sandboxes.facts,
    cpuFeaturesSha256: sandboxes.restore === undefined ? undefined : snapshots.cpuFeaturesSha256,
    target: links.control(),
    keyRing,
    verifyGrant: verify,
    attachments,
    isDegraded: () => journal.degraded,
    onHeard: (sentAtMs) => lease.renew(sentAtMs),
    onUp: () => {
      log.info({ event: 'ready', host_id: hostId });
      setReady();
    },
    log,
    timing,
  });
  sandboxes.onImagesChange?.(() => control.offerImages());
  await attachments.recover();
  control.connect();
  return {
    hostId,
    ready,
    get isConnected() {
      return control.isUp;
    },
    get edgeRefusal() {
      return control.refusal;
    },
    get clockAheadMs() {
      return control.clockAheadMs;
    },
    get isDegraded() {
      return journal.degraded;
    },
    get sandboxes() {
      return attachments.count;
    },
    get imagesInUse() {
      return attachments.imagesInUse;
    },
    get keptSnapshotBytes() {
      return snapshots.keptBytes;
    },
    get isDraining() {
      return attachments.isDraining;
    },
    set isDraining(isDraining) {
      if (isDraining === attachments.isToBeEmpty) return;
      attachments.drainForMachine(isDraining);
      log.info({ event: isDraining ? 'draining' : 'taking_sandboxes' });
    },
    async stop({ patienceMs = 0, hurrying, isSucceeded = false } = {}) {
      attachments.isDraining = true;
      lease.stop();
      const patience = wait(patienceMs, undefined, { signal: hurrying, ref: false }).catch(() => {});
      await attachments.stop(patience, isSucceeded);
      await snapshots.close();
      control.close(CLOSE_GOING_AWAY);
      await journal.close();
    },
  };
}

/** An edge that cannot be reached is asked again until the agent is stopped; one that refuses is not. */
async function enrolWhenReachable(options: AgentOptions): Promise<Outcome<HostIdentity>> {
  for (let attempt = 1; ; attempt += 1) {
    const identity = await identityOf({ ...options, directory: options.hostDir });
    if (identity.ok || identity.code !== 'overloaded' || options.signal.aborted) return identity;
    const delayMs = reconnectDelayMs(attempt, Math.random);
    options.log.warn({ event: 'edge_unreachable', detail: identity.detail, attempt, delay_ms: delayMs });
    await wait(delayMs, undefined, { signal: options.signal }).catch(() => {});
  }
}
