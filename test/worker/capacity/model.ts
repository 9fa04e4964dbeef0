/**
 * How many requests a second each kind of object has at a given scale. Counted are calls, link messages and alarms: what
 * an object has to wake and work for. Heartbeats are answered by the runtime and cost it nothing. Objects of one call, one run,
 * one MCP session or one key of a client have no more to do than that one asks for, and the audit log what operators do.
 */
import { HEARTBEAT_INTERVAL_MS } from '../../../shared/limits.ts';
import { BLOCKS_PER_WINDOW, STANDING_LIVES_MS, WINDOW_S } from '../../../worker/middleware/admission.ts';
import { REPORT_INTERVAL_MS } from '../../../worker/objects/host/load-report.ts';
import { reportAfterMs } from '../../../worker/objects/tenant/ledger/account.ts';
import { MANY_HOSTS, PICTURE_LIVES_MS } from '../../../worker/placement/pool-pictures.ts';
import { KNOWN_FOR_MS } from '../../../worker/tools/known-tools.ts';

export interface Scale {
  sessions: number;
  hosts: number;
  callsPerS: number;
  /** How long a session lives, on average. */
  sessionLifeS: number;
  hostsPerPool: number;
  /** Isolates of the Worker that place sessions in one pool, and that serve one tenant. */
  isolates: number;
  /** The part of everything that the largest tenant has. */
  largestTenant: number;
  /** What a session does in its life, on average. */
  perSession: Features;
  /** The parts of all calls that are of registered tools, that go to the busiest MCP source of their tenant, and that need an approval. */
  registeredCalls: number;
  sourceCalls: number;
  approvedCalls: number;
  /** Frames of one execution that reach the object as messages: a host sends a short one's in one. */
  messagesPerCall: number;
}

/** What this project is planned for. */
export const WHOLE: Scale = {
  sessions: 1_000_000,
  hosts: 5_000,
  callsPerS: 100_000,
  sessionLifeS: 600,
  hostsPerPool: 200,
  isolates: 200,
  largestTenant: 0.03,
  perSession: {
    keys: 0.5,
    suspensions: 0.1,
    snapshots: 0.1,
    artifacts: 0.1,
    longOutputs: 0.1,
    workflows: 0.02,
  },
  registeredCalls: 0.05,
  sourceCalls: 0.02,
  approvedCalls: 0.01,
  messagesPerCall: 4,
};

/** What an object that writes is planned for; it can do about twice as much. */
export const CEILING_PER_S = 300;

export interface Features {
  /** Creates that carry a key. */
  keys: number;
  /** Times that it goes into a snapshot and comes back. */
  suspensions: number;
  /** Snapshots, forks and restore points beside those. */
  snapshots: number;
  artifacts: number;
  /** Times that long outputs make it ask for room. */
  longOutputs: number;
  workflows: number;
}

const FEATURES = [
  'keys',
  'suspensions',
  'snapshots',
  'artifacts',
  'longOutputs',
  'workflows',
] as const satisfies readonly (keyof Features)[];

export interface Loads {
  session: number;
  host: number;
  pool: number;
  tenant: number;
  snapshots: number;
  artifacts: number;
  catalogue: number;
  source: number;
  approvals: number;
}

/** A host with room for this many or more tells its load once a second at most. */
const REPORTS_PER_S_AT_MOST = 1;
/** Its place is held, it is noted, and in the end taken out with what it used. */
const TENANT_CALLS_PER_SESSION = 3;
const TENANT_CALLS_PER: Readonly<Record<keyof Features, number>> = {
  /** `reserveCreate` */
  keys: 1,
  /** `recordSession` of either move, `account` of the first, `takePlace`; its snapshot takes, tells and gives back storage. */
  suspensions: 2 + 1 + 1 + 3,
  /** `holdStorage` for the place, for what it is, and when it is gone. */
  snapshots: 3,
  artifacts: 3,
  longOutputs: 3,
  /** `recordWorkflow` at its start and its end, `forgetWorkflow`. */
  workflows: 3,
};
/** Begin, complete, find, and release or remove. */
const INDEX_CALLS_PER_THING = 4;
/** Of the programs of a session that name no tools, each has those listed that it may call. */
const LISTS_PER_SESSION = 1;
const SOURCE_CALLS_PER_CALL = 1;
/** It is begun, looked at and decided, and told to have been made. */
const APPROVAL_CALLS_PER_CALL = 4;
/** Each session asks once a day how long things are kept. */
const RETENTION_LOOK_S = 86_400;
/** The object of a tenant's webhooks is asked once for each batch of the queue. */
const NOTICES_PER_CALL = 2;
const NOTICES_PER_BATCH = 50;
/** Attach, whether the host is revoked as it links the session, and the word that the session needs it no more. */
const HOST_CALLS_PER_SESSION = 3;
/** A place that is taken, and given back, where the pool's object is asked. */
const POOL_CALLS_PER_CREATE = 2;

/** Requests a second to the webhooks of the largest tenant, where all is told that happens in its sessions. */
export function webhooksLoadAt({ callsPerS, largestTenant }: Scale): number {
  return (callsPerS * largestTenant * NOTICES_PER_CALL) / NOTICES_PER_BATCH;
}

/** Requests a second to the object of one pool, by each host that is linked, and by those who place sessions. */
export function poolLoadsAt(scale: Scale): { ofEachHost: number; placing: number } {
  const createsPerS = scale.sessions / scale.sessionLifeS;
  const pools = Math.ceil(scale.hosts / scale.hostsPerPool);
  const hostChangesPerS = (2 * createsPerS) / scale.hosts;
  return {
    // Near the end of its room every change of a host is worth a report: the worst a pool can have.
    ofEachHost: Math.min(hostChangesPerS, REPORTS_PER_S_AT_MOST) + 1_000 / REPORT_INTERVAL_MS,
    placing:
      scale.hostsPerPool >= MANY_HOSTS
        ? (scale.isolates * 1_000) / PICTURE_LIVES_MS
        : (createsPerS / pools) * POOL_CALLS_PER_CREATE,
  };
}

export function loadsAt(scale: Scale): Loads {
  const createsPerS = scale.sessions / scale.sessionLifeS;
  const hostChangesPerS = (2 * createsPerS) / scale.hosts;
  const hostLoadsPerS = Math.min(hostChangesPerS, REPORTS_PER_S_AT_MOST) + 1_000 / HEARTBEAT_INTERVAL_MS;
  const pool = poolLoadsAt(scale);
  const { perSession } = scale;
  const callsOfTenantPerS = scale.callsPerS * scale.largestTenant;
  const createsOfTenantPerS = createsPerS * scale.largestTenant;
  const forFeatures = FEATURES.reduce((sum, name) => sum + TENANT_CALLS_PER[name] * perSession[name], 0);
  const sessionsOfTenant = scale.sessions * scale.largestTenant;
  return {
    session: (scale.callsPerS / scale.sessions) * (1 + scale.messagesPerCall),
    host: (createsPerS / scale.hosts) * HOST_CALLS_PER_SESSION + hostLoadsPerS,
    pool: pool.ofEachHost * scale.hostsPerPool + pool.placing,
    tenant:
      createsOfTenantPerS * (TENANT_CALLS_PER_SESSION + forFeatures) +
      // What sessions without limits have used; where they live for less, they say it as they end.
      (sessionsOfTenant * 1_000) / reportAfterMs(sessionsOfTenant) +
      sessionsOfTenant / RETENTION_LOOK_S +
      // An isolate that leased a block asks again when it is spent; each has asked once for its first.
      BLOCKS_PER_WINDOW / WINDOW_S +
      scale.isolates / WINDOW_S +
      // Each may hold streams whose tokens it has to look after.
      (scale.isolates * 1_000) / STANDING_LIVES_MS,
    snapshots: createsOfTenantPerS * (perSession.suspensions + perSession.snapshots) * INDEX_CALLS_PER_THING,
    artifacts: createsOfTenantPerS * perSession.artifacts * INDEX_CALLS_PER_THING,
    // Whatever tools its calls are of: each isolate asks once in a while whether what it knows still holds.
    catalogue:
      Math.min(callsOfTenantPerS * scale.registeredCalls, (scale.isolates * 1_000) / KNOWN_FOR_MS) +
      createsOfTenantPerS * LISTS_PER_SESSION,
    source: callsOfTenantPerS * scale.sourceCalls * SOURCE_CALLS_PER_CALL,
    approvals: callsOfTenantPerS * scale.approvedCalls * APPROVAL_CALLS_PER_CALL,
  };
}
