/** The environment of the agent, read once: every value checked, every default applied. */
import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { join, resolve } from 'node:path';
import * as z from 'zod';
import { failure, type Outcome, success } from '../shared/errors.ts';
import type { ResourceLimits } from '../shared/session.ts';
import { EGRESS_ENVIRONMENT, type EgressSettings, egressSettings } from './egress/settings.ts';
import { POOL_ENVIRONMENT, type PoolSettings, poolSettings } from './pool/settings.ts';
import type { IoRates } from './sandbox/engine.ts';
import { DEFAULT_REST_AFTER_MS } from './sandbox/program-rest.ts';
import { HELD_FOR_S } from './sandbox/thaw-guard.ts';

const GIB = 1024 ** 3;
/** Left to the host itself when its own caps are not given. */
const HOST_MEMORY_SHARE = 0.75;
const DEFAULT_SANDBOX_BYTES = 512 * 1024 ** 2;

const Path = z.string().min(1);
const Count = z.coerce.number().int().min(1);

const EnvironmentSchema = z.object({
  SANDGATE_STATE_DIR: Path,
  SANDGATE_EDGE_URL: z.url({ protocol: /^https?$/ }),
  SANDGATE_EDGE_ORIGIN: z.url({ protocol: /^https?$/ }).optional(),
  SANDGATE_ENROLLMENT_TOKEN: z.string().min(22).max(256).optional(),
  SANDGATE_RUNSC: Path,
  SANDGATE_IMAGES_DIR: Path,
  SANDGATE_GUEST_DIR: Path,
  SANDGATE_DIGEST_LIBRARY: Path,
  SANDGATE_STREAM_KEEPER: Path,
  SANDGATE_CAPACITY: Count.default(
    Math.max(1, Math.floor((totalmem() * HOST_MEMORY_SHARE) / DEFAULT_SANDBOX_BYTES)),
  ),
  SANDGATE_CGROUP_PARENT: z
    .string()
    .regex(/^\/[A-Za-z0-9._/-]+$/)
    .optional(),
  /** 0: no metrics are served. */
  SANDGATE_METRICS_PORT: z.coerce.number().int().min(0).max(65_535).default(0),
  /** How long a SIGTERM waits for executions that run. */
  SANDGATE_DRAIN_TIMEOUT_S: z.coerce.number().min(0).max(3_600).default(10),
  SANDGATE_LOG_LEVEL: z.enum(['debug', 'info', 'warn', 'error', 'silent']).default('info'),
  /** How long a program waits for its tools before its sandbox is frozen. */
  SANDGATE_WAITING_FREEZE_MS: z.coerce.number().int().min(0).max(3_600_000).default(DEFAULT_REST_AFTER_MS),
  /** How long sandboxes at rest wait for a successor of an agent that died. */
  SANDGATE_HELD_FOR_S: z.coerce.number().int().min(0).max(3_600).default(HELD_FOR_S),
  /** Of snapshots that lie at the edge, for sessions that come back here; 0: nothing is kept. */
  SANDGATE_KEPT_SNAPSHOT_BYTES: z.coerce
    .number()
    .int()
    .min(0)
    .default(2 * GIB),
  /** Of a workspace, as a tar archive, that is stored beside its checkpoint; 0: none is. */
  SANDGATE_RESCUED_WORKSPACE_BYTES: z.coerce
    .number()
    .int()
    .min(0)
    .default(GIB / 4),
  ...EGRESS_ENVIRONMENT,
  ...POOL_ENVIRONMENT,
  /** From and to the disk of the state folder, of one sandbox. */
  SANDGATE_IO_READ_BYTES_PER_S: Count.optional(),
  SANDGATE_IO_WRITE_BYTES_PER_S: Count.optional(),
  SANDGATE_MAX_CPUS: z.coerce.number().min(0.1).default(availableParallelism()),
  SANDGATE_MAX_MEMORY_BYTES: Count.default(Math.floor(totalmem() * HOST_MEMORY_SHARE)),
  SANDGATE_MAX_PROCESSES: Count.default(1024),
  SANDGATE_MAX_WORKSPACE_BYTES: Count.default(16 * GIB),
  SANDGATE_MAX_TMP_BYTES: Count.default(4 * GIB),
});

export interface Configuration {
  /** Folder of this agent in the state folder. */
  hostDir: string;
  edgeUrl: string;
  edgeOrigin: string;
  enrolmentToken: string | undefined;
  runscPath: string;
  imagesDir: string;
  guestDir: string;
  digestLibrary: string;
  streamKeeperPath: string;
  capacity: number;
  cgroupParent: string;
  caps: ResourceLimits;
  io: IoRates;
  egress: EgressSettings;
  pool: PoolSettings;
  restAfterMs: number;
  heldForS: number;
  keptSnapshotBytes: number;
  maxRescuedBytes: number;
  logLevel: 'debug' | 'info' | 'warn' | 'error' | 'silent';
  /** Undefined: no metrics are served. */
  metricsPort: number | undefined;
  drainTimeoutMs: number;
  agentVersion: string;
}

export function readConfiguration(environment: NodeJS.ProcessEnv): Outcome<Configuration> {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''));
  const parsed = EnvironmentSchema.safeParse(given);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    return failure(
      'invalid_request',
      `${issue?.path.join('.') ?? 'environment'}: ${issue?.message ?? 'wrong'}`,
    );
  }
  const values = parsed.data;
  const hostDir = join(resolve(values.SANDGATE_STATE_DIR), 'host');
  return success({
    hostDir,
    edgeUrl: values.SANDGATE_EDGE_URL,
    edgeOrigin: new URL(values.SANDGATE_EDGE_ORIGIN ?? values.SANDGATE_EDGE_URL).origin,
    enrolmentToken: values.SANDGATE_ENROLLMENT_TOKEN,
    runscPath: resolve(values.SANDGATE_RUNSC),
    imagesDir: resolve(values.SANDGATE_IMAGES_DIR),
    guestDir: resolve(values.SANDGATE_GUEST_DIR),
    digestLibrary: resolve(values.SANDGATE_DIGEST_LIBRARY),
    streamKeeperPath: resolve(values.SANDGATE_STREAM_KEEPER),
    capacity: values.SANDGATE_CAPACITY,
    // What is found below it at start is removed, so no two agents may share it.
    cgroupParent: values.SANDGATE_CGROUP_PARENT ?? defaultCgroupParent(hostDir),
    caps: {
      cpus: values.SANDGATE_MAX_CPUS,
      memory_bytes: values.SANDGATE_MAX_MEMORY_BYTES,
      processes: values.SANDGATE_MAX_PROCESSES,
      workspace_bytes: values.SANDGATE_MAX_WORKSPACE_BYTES,
      tmp_bytes: values.SANDGATE_MAX_TMP_BYTES,
    },
    io: {
      readBytesPerS: values.SANDGATE_IO_READ_BYTES_PER_S,
      writeBytesPerS: values.SANDGATE_IO_WRITE_BYTES_PER_S,
    },
    egress: egressSettings(values),
    pool: poolSettings(values, values.SANDGATE_CAPACITY),
    restAfterMs: values.SANDGATE_WAITING_FREEZE_MS,
    heldForS: values.SANDGATE_HELD_FOR_S,
    keptSnapshotBytes: values.SANDGATE_KEPT_SNAPSHOT_BYTES,
    maxRescuedBytes: values.SANDGATE_RESCUED_WORKSPACE_BYTES,
    logLevel: values.SANDGATE_LOG_LEVEL,
    metricsPort: values.SANDGATE_METRICS_PORT === 0 ? undefined : values.SANDGATE_METRICS_PORT,
    drainTimeoutMs: values.SANDGATE_DRAIN_TIMEOUT_S * 1000,
    agentVersion: agentVersion(),
  });
}

/** One for each state folder. */
export function defaultCgroupParent(hostDir: string): string {
  return `/sandgate-${hash('sha256', hostDir).slice(0, 8)}`;
}

const PackageSchema = z.object({ version: z.string() });

export function agentVersion(): string {
  const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return PackageSchema.parse(JSON.parse(text)).version;
}
