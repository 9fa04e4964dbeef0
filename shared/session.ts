/** A session as the API shows it, and what it takes to create one. */
import * as z from 'zod';
import {
  DEFAULT_POOL,
  HostIdSchema,
  ImageDigestSchema,
  PoolNameSchema,
  SessionIdSchema,
  SnapshotIdSchema,
} from './ids.ts';
import { SessionStateSchema } from './lifecycle.ts';
import {
  DEFAULT_IDLE_TIMEOUT_S,
  DEFAULT_RESOURCE_LIMITS,
  MAX_ENVIRONMENT_BYTES,
  MAX_IDLE_TIMEOUT_S,
  MAX_LABELS,
  MAX_LIFETIME_S,
  MAX_METADATA_BYTES,
} from './limits.ts';
import { NetworkSchema, NetworkViewSchema } from './network.ts';
import { RollbackPolicySchema } from './rollback.ts';

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;

const LIMIT_SCHEMAS = {
  cpus: z.number().min(0.1).max(64),
  memory_bytes: z
    .int()
    .min(64 * MIB)
    .max(256 * GIB),
  processes: z.int().min(8).max(4096),
  workspace_bytes: z
    .int()
    .min(MIB)
    .max(1024 * GIB),
  tmp_bytes: z
    .int()
    .min(MIB)
    .max(64 * GIB),
};

/** What a sandbox may use. Bounds here are the protocol's; a host has caps of its own below them. */
export const ResourceLimitsSchema = z.strictObject({
  cpus: LIMIT_SCHEMAS.cpus.default(DEFAULT_RESOURCE_LIMITS.cpus),
  memory_bytes: LIMIT_SCHEMAS.memory_bytes.default(DEFAULT_RESOURCE_LIMITS.memory_bytes),
  processes: LIMIT_SCHEMAS.processes.default(DEFAULT_RESOURCE_LIMITS.processes),
  workspace_bytes: LIMIT_SCHEMAS.workspace_bytes.default(DEFAULT_RESOURCE_LIMITS.workspace_bytes),
  tmp_bytes: LIMIT_SCHEMAS.tmp_bytes.default(DEFAULT_RESOURCE_LIMITS.tmp_bytes),
});
export type ResourceLimits = z.infer<typeof ResourceLimitsSchema>;

/** Limits as a request names them: by class, one by one, or both. */
export const LimitsRequestSchema = z.strictObject({
  class: z
    .enum(['small', 'standard', 'large', 'io'])
    .optional()
    .describe('Sizes by name; what is named beside it may be smaller but not larger.'),
  cpus: LIMIT_SCHEMAS.cpus.optional(),
  memory_bytes: LIMIT_SCHEMAS.memory_bytes.optional(),
  processes: LIMIT_SCHEMAS.processes.optional(),
  workspace_bytes: LIMIT_SCHEMAS.workspace_bytes.optional(),
  tmp_bytes: LIMIT_SCHEMAS.tmp_bytes.optional(),
});
export type LimitsRequest = z.infer<typeof LimitsRequestSchema>;

/** Where hosts are, as an operator names it. */
export const RegionSchema = z.string().regex(/^[a-z0-9][a-z0-9-]{0,31}$/);

const EnvironmentSchema = z
  .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/), z.string().max(32_768))
  .refine((environment) => JSON.stringify(environment).length <= MAX_ENVIRONMENT_BYTES, {
    message: `an environment of at most ${MAX_ENVIRONMENT_BYTES} bytes`,
  })
  .refine((environment) => Object.values(environment).every((value) => !value.includes('\0')), {
    message: 'values without NUL bytes',
  });

const MetadataSchema = z
  .record(z.string().min(1).max(128), z.string().max(4096))
  .refine((metadata) => JSON.stringify(metadata).length <= MAX_METADATA_BYTES, {
    message: `metadata of at most ${MAX_METADATA_BYTES} bytes`,
  });

const LABEL_PART = '[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?';
const LabelKeySchema = z.string().regex(new RegExp(`^${LABEL_PART}$`));
const LabelValueSchema = z.string().regex(new RegExp(`^(?:${LABEL_PART})?$`));
/** Where every sandbox keeps the session's files. */
export const WORKDIR = '/workspace';

/** Names with values by which sessions are found. */
export const LabelsSchema = z
  .record(LabelKeySchema, LabelValueSchema)
  .refine((labels) => Object.keys(labels).length <= MAX_LABELS, { message: `at most ${MAX_LABELS} labels` });

const SELECTOR_TERM = new RegExp(`^(${LABEL_PART})(?:=(${LABEL_PART})?)?$`);

export interface LabelTerm {
  key: string;
  /** Undefined: whatever its value. */
  value: string | undefined;
}

/** `team=red,env` as terms that all have to hold; undefined for what is none. */
export function parseLabelSelector(text: string): LabelTerm[] | undefined {
  const terms = text.split(',').map((term): LabelTerm | undefined => {
    const [, key, value] = SELECTOR_TERM.exec(term) ?? [];
    return key === undefined ? undefined : { key, value: term.includes('=') ? (value ?? '') : undefined };
  });
  const known = terms.filter((term) => term !== undefined);
  return known.length === terms.length && known.length <= MAX_LABELS ? known : undefined;
}

const LifetimeSchema = z
  .int()
  .min(60)
  .max(MAX_LIFETIME_S)
  .nullable()
  .describe(
    'The session ends after so long, pauses not counted, as soon as nothing runs in it; null: when it is deleted or idle.',
  );

/** A name that the pool knows or a digest, never a tag. */
export const ImageNameSchema = z.string().regex(/^([a-z0-9][a-z0-9-]{0,62}|sha256:[0-9a-f]{64})$/);

const RescueSchema = z
  .enum(['workspace'])
  .optional()
  .describe(
    'Of a snapshot that no host can restore: its workspace alone, in an empty sandbox. What else was in it is given up.',
  );
const RescueImageSchema = ImageNameSchema.optional().describe(
  'Beside `rescue`: the image of that sandbox. By default that of the snapshot.',
);

/** Body of `POST /v1/sessions/{id}/resume`. */
export const ResumeSchema = z.strictObject({ rescue: RescueSchema, rescue_image: RescueImageSchema });
export type Resume = z.infer<typeof ResumeSchema>;

/** Body of `POST /v1/sessions`. */
export const CreateSessionSchema = z.strictObject({
  image: ImageNameSchema.default('python'),
  limits: LimitsRequestSchema.default({}),
  env: EnvironmentSchema.default({}),
  metadata: MetadataSchema.default({}),
  labels: LabelsSchema.default({}),
  idle_timeout_s: z.int().min(5).max(MAX_IDLE_TIMEOUT_S).default(DEFAULT_IDLE_TIMEOUT_S),
  lifetime_s: LifetimeSchema.default(null),
  suspend_after_idle_s: z
    .int()
    .min(5)
    .max(MAX_IDLE_TIMEOUT_S)
    .optional()
    .describe(
      'Without activity for so long, the session is suspended: it holds no host, and any call brings it back. Nothing by itself.',
    ),
  from_snapshot: SnapshotIdSchema.optional().describe(
    'Begin with what this snapshot has. Image, limits, environment, network and pool are those of the snapshot and not given.',
  ),
  rescue: RescueSchema,
  rescue_image: RescueImageSchema,
  on_host_loss: z
    .enum(['fail', 'rebuild'])
    .default('fail')
    .describe(
      'What becomes of the session when its host is lost: it fails with `host_lost`, or it goes on on another host from its last snapshot, in an empty sandbox without one.',
    ),
  rollback: RollbackPolicySchema.default('never').describe(
    '`on_failure`: a snapshot is made before each call, calls run one at a time, and one that ends as failed, timeout, oom or crashed is taken back.',
  ),
  network: NetworkSchema.nullable().default(null),
  pool: PoolNameSchema.default(DEFAULT_POOL),
  region: RegionSchema.optional().describe('Where it is to run, instead of a pool by name.'),
});
export type CreateSession = z.infer<typeof CreateSessionSchema>;
/** With the limits that its words stand for. */
export type SizedSession = Omit<CreateSession, 'limits'> & { limits: ResourceLimits };

/** Body of `PATCH /v1/sessions/{id}`: what is not named stays as it is. `lifetime_s` counts from now on. */
export const UpdateSessionSchema = z
  .strictObject({
    labels: z
      .record(LabelKeySchema, LabelValueSchema.nullable())
      .refine((labels) => Object.keys(labels).length <= MAX_LABELS, {
        message: `at most ${MAX_LABELS} labels`,
      })
      .describe('Labels to set; one that is null goes.'),
    metadata: MetadataSchema,
    idle_timeout_s: z.int().min(5).max(MAX_IDLE_TIMEOUT_S),
    lifetime_s: LifetimeSchema,
  })
  .partial();
export type UpdateSession = z.infer<typeof UpdateSessionSchema>;

const TimestampSchema = z.iso.datetime();

/** A session resource. Times are RFC 3339 in UTC. */
export const SessionSchema = z.object({
  session_id: SessionIdSchema,
  state: SessionStateSchema,
  image: z.string(),
  image_digest: ImageDigestSchema.nullable(),
  resource_limits: ResourceLimitsSchema,
  metadata: MetadataSchema,
  labels: LabelsSchema,
  environment: z
    .record(z.string(), z.string())
    .describe(
      'What the session began with, and what its shell has made of it by `export` and `unset` since.',
    ),
  environment_truncated: z
    .boolean()
    .optional()
    .describe(
      'Where the changes of the shell are more than 16 KiB: `environment` is what the session began with.',
    ),
  network: NetworkViewSchema.nullable(),
  workdir: z.string().describe('Where the shell of the session stands.'),
  pool: z.string(),
  host_id: HostIdSchema.nullable(),
  sandbox_id: z.string().nullable(),
  epoch: z.int(),
  /** How often the sandbox was made of a snapshot; the guest finds it in `/run/sandgate/generation`. */
  generation: z.int().min(0),
  /** What the session began with, and whose that was. */
  from_snapshot: SnapshotIdSchema.nullable(),
  parent_session_id: SessionIdSchema.nullable(),
  suspend_after_idle_s: z.number().nullable(),
  on_host_loss: z.enum(['fail', 'rebuild']),
  rollback: RollbackPolicySchema,
  idle_timeout_s: z.int(),
  owner: z.object({ tenant: z.string(), subject: z.string() }),
  created_at: TimestampSchema,
  /** When its lifetime is over; on pause, as it would be if it went on now. */
  expires_at: TimestampSchema.nullable(),
  last_activity_at: TimestampSchema,
  error: z.object({ code: z.string(), detail: z.string() }).nullable(),
  executions: z.object({ total: z.int(), queued: z.int(), running: z.int() }),
});
export type Session = z.infer<typeof SessionSchema>;

export const SessionListSchema = z.object({
  sessions: z.array(
    SessionSchema.pick({
      session_id: true,
      state: true,
      image: true,
      metadata: true,
      labels: true,
      created_at: true,
    }).extend({ labels: LabelsSchema.default({}) }),
  ),
  next_cursor: z.string().nullable(),
});
