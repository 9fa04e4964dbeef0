/** Receipts: what a host signs of each execution that ended, chained per session. Never arguments or output. */
import * as z from 'zod';
import { compiled } from './compiled-schema.ts';
import { GrantLimitsSchema } from './grant.ts';
import {
  ExecutionIdSchema,
  HostIdSchema,
  ImageDigestSchema,
  KeyIdSchema,
  SessionIdSchema,
  Sha256Schema,
} from './ids.ts';
import { TerminalStatusSchema } from './lifecycle.ts';

export const RECEIPT_PAYLOAD_TYPE = 'application/vnd.sandgate.receipt.v1+json';

/** `bytes` were written by the program and hash to `sha256`; `truncated`: the result holds head and tail only. */
export const StreamDigestSchema = z.strictObject({
  sha256: Sha256Schema,
  bytes: z.int().min(0),
  truncated: z.boolean(),
});

/**
 * A part of the answer, as the host gave it: `value`, `structured` (as JSON) or `results/N`, of which `sha256` and `bytes` are
 * those of `data` in UTF-8.
 */
export const ArtifactSchema = z.strictObject({
  path: z.string().max(256),
  sha256: Sha256Schema,
  bytes: z.int().min(0),
});
export type Artifact = z.infer<typeof ArtifactSchema>;

/** Hosts on which an execution ran before it was moved, in order. */
export const FormerHostsSchema = z.array(HostIdSchema).max(256);

export const ReceiptSchema = compiled(
  z.strictObject({
    v: z.literal(1),
    receipt_id: z.string().regex(/^rct_[A-Za-z0-9_-]{22}$/),
    execution_id: ExecutionIdSchema,
    grant_jti: z.string(),
    grant_sha256: Sha256Schema,
    tenant_sha256: Sha256Schema,
    session_id: SessionIdSchema,
    epoch: z.int().min(1),
    /** Position in the session's chain, from 1 without gaps. */
    seq: z.int().min(1),
    /** SHA-256 of the payload bytes of the receipt before; 64 zeros for the first. */
    prev_sha256: Sha256Schema,
    tool: z.string(),
    tool_version: z.string(),
    args_sha256: Sha256Schema,
    image: ImageDigestSchema,
    runsc_version: z.string(),
    runsc_platform: z.string(),
    limits: GrantLimitsSchema,
    usage: z.strictObject({
      cpu_ms: z.number().min(0),
      wall_ms: z.number().min(0),
      peak_memory_bytes: z.int().min(0),
      output_bytes: z.int().min(0),
      /** Through the session's way out since the receipt before; agents of former versions do not say it. */
      egress_bytes: z.int().min(0).optional(),
    }),
    status: TerminalStatusSchema,
    exit_code: z.int().nullable(),
    signal: z.string().nullable(),
    reason: z.string().nullable(),
    state_lost: z.boolean(),
    stdout: StreamDigestSchema,
    stderr: StreamDigestSchema,
    /** What the execution gave beside its streams; agents of former versions name none. */
    artifacts: z.array(ArtifactSchema),
    granted_at: z.iso.datetime(),
    started_at: z.iso.datetime().nullable(),
    finished_at: z.iso.datetime(),
    /** The host that saw the end, and signs. */
    host_id: HostIdSchema,
    key_id: KeyIdSchema,
    former_hosts: FormerHostsSchema.min(1).optional(),
    /** How far the host's clock was ahead of the edge's at the end, where that is more than `NOTED_CLOCK_SKEW_MS`. */
    clock_ahead_ms: z.int().optional(),
  }),
);
export type Receipt = z.infer<typeof ReceiptSchema>;

/** Times of a receipt are the host's own; further from the edge's than that, it says so. */
export const NOTED_CLOCK_SKEW_MS = 5_000;

export const FIRST_PREVIOUS_SHA256 = '0'.repeat(64);
