/** Numbers that both ends of a link must agree on. Units are in the names. */

const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

/** Largest frame on any link, header included. workerd drops messages above 32 MiB without a word. */
export const MAX_FRAME_BYTES = 256 * KIB;
/** Largest payload that a sender puts into one frame, so that header and payload stay under the cap. */
export const MAX_FRAME_PAYLOAD_BYTES = 192 * KIB;
/** Size towards which a host coalesces output: per-frame cost dominates below it. */
export const OUTPUT_FRAME_BYTES = 128 * KIB;

/** Kept of one stream in a result: this much from its start … */
export const INLINE_HEAD_BYTES = 512 * KIB;
/** … and this much from its end. */
export const INLINE_TAIL_BYTES = 512 * KIB;
export const INLINE_BYTES = INLINE_HEAD_BYTES + INLINE_TAIL_BYTES;
/** Of a stream longer than that, so much from its start is stored; beyond it bytes are counted only. */
export const MAX_STORED_OUTPUT_BYTES = 64 * MIB;
/** Output of one execution that the Session object keeps on disk for replay, both streams together. */
export const REPLAY_WINDOW_BYTES = 4 * MIB;
/** Output beyond the replay window that the Session object keeps in memory for a reader that reconnects. */
export const REPLAY_RING_BYTES = 2 * MIB;
/** How long a full ring holds the program back for an absent reader before the oldest output is let go. */
export const READER_GRACE_MS = 15_000;
/** Bytes a host may have sent on a session link without an acknowledgement. */
export const LINK_WINDOW_BYTES = 2 * MIB;

export const MAX_ARGUMENTS_BYTES = 1 * MIB;
export const MAX_STDIN_BYTES = 1 * MIB;
/** Input of one execution that may be on its way to its program; beyond it the host takes no more of it. */
export const STDIN_WINDOW_BYTES = 2 * MIB;
export const MAX_BODY_BYTES = 2 * MIB;
export const MAX_VALUE_BYTES = 1 * MIB;
export const MAX_RESULT_PARTS_BYTES = 8 * MIB;
export const MAX_FILE_READ_BYTES = 1 * MIB;
export const MAX_METADATA_BYTES = 16 * KIB;
export const MAX_ENVIRONMENT_BYTES = 64 * KIB;

/** Executions that may wait in one session before the next is refused with `queue_full`. */
export const MAX_QUEUED_EXECUTIONS = 64;
export const MAX_EXECUTION_HISTORY = 1_000;
/** Executions with a live idempotency key that one session keeps beside its history; beyond it the oldest go. */
export const MAX_KEYED_EXECUTIONS = 20_000;

export const DEFAULT_TIMEOUT_MS = 30_000;
export const MAX_TIMEOUT_MS = 3_600_000;
export const DEFAULT_IDLE_TIMEOUT_S = 600;
export const MAX_LIFETIME_S = 30 * 86_400;
export const MAX_LABELS = 16;
export const MAX_IDLE_TIMEOUT_S = 86_400;

/** How long the edge waits past an execution's own deadline for the host's answer. */
export const HOST_ANSWER_GRACE_MS = 4_000;
/** Every accepted execution is terminal at most this long after its deadline, whatever dies. */
export const TERMINAL_GRACE_MS = 60_000;
export const ATTACH_TIMEOUT_MS = 30_000;

export const GRANT_LIFETIME_S = 60;
export const MAX_CLOCK_SKEW_S = 30;
/** A host keeps a grant's `jti` this long after the grant expired. */
export const GRANT_MEMORY_S = 86_400;

export const HEARTBEAT_INTERVAL_MS = 10_000;
export const HEARTBEAT_JITTER = 0.2;
export const HOST_SUSPECT_MS = 20_000;
/** A host that the edge has not answered for so long, by its own monotonic clock, stands still: nothing runs, nothing begins … */
export const HOST_LEASE_MS = 30_000;
/** … and after this its sandboxes are gone, well before the edge may give their sessions to another host. */
export const HOST_LEASE_END_MS = 40_000;
export const HOST_DEAD_MS = 45_000;
export const SSE_HEARTBEAT_MS = 10_000;

export const ENROLLMENT_TOKEN_LIFETIME_S = 900;

export const DEFAULT_RESOURCE_LIMITS = {
  cpus: 1,
  memory_bytes: 512 * MIB,
  processes: 256,
  workspace_bytes: 1 * GIB,
  tmp_bytes: 256 * MIB,
} as const;

/**
 * Sizes by name. `standard` is what a session has that says nothing; an edge may have other sizes by configuration, and
 * a host refuses what is above its own caps.
 */
export const RESOURCE_CLASSES = {
  small: {
    cpus: 0.5,
    memory_bytes: 256 * MIB,
    processes: 128,
    workspace_bytes: 512 * MIB,
    tmp_bytes: 128 * MIB,
  },
  standard: DEFAULT_RESOURCE_LIMITS,
  large: { cpus: 2, memory_bytes: 2 * GIB, processes: 512, workspace_bytes: 4 * GIB, tmp_bytes: 1 * GIB },
  io: { cpus: 1, memory_bytes: 1 * GIB, processes: 256, workspace_bytes: 8 * GIB, tmp_bytes: 2 * GIB },
} as const;

/** Of a grant as it travels, with all of the longest tool policy in it, twice. */
export const MAX_GRANT_CHARACTERS = 16_384;
