/**
 * Frames of the links between host and edge. One WebSocket message is one frame:
 * u16 big-endian length of the header, header as JSON in UTF-8, payload bytes.
 */
import * as z from 'zod';
import { PROGRAM_UP_FRAMES } from './code-mode.ts';
import { compiled } from './compiled-schema.ts';
import { EnvelopeSchema } from './dsse.ts';
import { concatBytes, utf8 } from './encoding.ts';
import { failure, type Outcome, success } from './errors.ts';
import { ExecutionOutcomeSchema, StreamNameSchema } from './execution.ts';
import {
  ExecutionIdSchema,
  HostIdSchema,
  ImageDigestSchema,
  SessionIdSchema,
  Sha256Schema,
  SnapshotIdSchema,
} from './ids.ts';
import { MAX_FRAME_BYTES, MAX_GRANT_CHARACTERS } from './limits.ts';
import { SNAPSHOT_UP_FRAMES } from './snapshot.ts';
import { TRANSFER_DOWN_SCHEMAS, TRANSFER_UP_SCHEMAS } from './transfer.ts';

/**
 * Of the links between host and edge. Each end speaks this version and the one before: `hello` offers, `welcome` says what
 * holds, and nothing that came with a later version is sent to a peer of an earlier one. 2: `welcome` names the version,
 * `hello` what the host holds, `drain` and `draining`, `lease_lost`, `request_id` in commands, the relay `kept`, and snapshots.
 */
export const PROTOCOL_VERSION = 2;
export const OLDEST_PROTOCOL_VERSION = 1;

/** The version that a link has whose host offers `offered`; undefined where there is none that both know. */
export function agreedProtocol(offered: number): number | undefined {
  return offered >= OLDEST_PROTOCOL_VERSION ? Math.min(offered, PROTOCOL_VERSION) : undefined;
}

/** Of a link that ends because its two ends have no version in common. */
export const CLOSE_PROTOCOL_UNKNOWN = 4026;
/** Of a control link whose host an operator has revoked: it is taken up no more. */
export const CLOSE_REVOKED = 4031;
/** A host of version 1 takes no fields in a `welcome` that it does not know. */
const AgreedProtocol = z.int().min(2).optional();

/** Text messages of the application heartbeat; the edge's runtime answers them without waking an object. */
export const PING_TEXT = 'ping';
export const PONG_TEXT = 'pong';

const Nonce = z.string().min(22).max(128);
const Seq = z.int().min(1);
const Epoch = z.int().min(1);

/** First frames of every link: the edge challenges, the host proves that it holds its key. */
export const ChallengeFrameSchema = z.strictObject({ type: z.literal('challenge'), nonce: Nonce });
export const ProofFrameSchema = z.strictObject({
  type: z.literal('proof'),
  /** base64 Ed25519 signature over `proofMessage`. */
  signature: z.string().max(128),
});

/** What a host signs to prove its key on a link. */
export function proofMessage(link: {
  origin: string;
  hostId: string;
  nonce: string;
  purpose: string;
}): Uint8Array<ArrayBuffer> {
  return utf8(`sandgate-link-proof\n${link.origin}\n${link.hostId}\n${link.purpose}\n${link.nonce}`);
}

/** A command is a grant and its payload; a payload over one frame comes in `parts` with the same grant. */
export const CommandFrameSchema = z.strictObject({
  type: z.literal('command'),
  grant: z.string().max(MAX_GRANT_CHARACTERS),
  part: z.int().min(0).max(63),
  parts: z.int().min(1).max(64),
  /** Of the request that it is for: only the host's log shows it. */
  request_id: z.string().max(64).optional(),
});

/** Edge to host on a session link. */
export const SessionLinkDownSchema = compiled(
  z.discriminatedUnion('type', [
    ChallengeFrameSchema,
    z.strictObject({
      type: z.literal('welcome'),
      epoch: Epoch,
      /** Highest sequence number of this stream that the edge has kept; 0 for a new stream. */
      acked_seq: z.int().min(0),
      window_bytes: z.int().min(1),
      protocol: AgreedProtocol,
    }),
    /**
     * Everything up to `seq` is kept and need not be sent again; it also gives that credit back. Beyond it, the same holds
     * for what is not of the executions in `held`, whose readers are slow; only a host that has `lanes` is told so.
     */
    z.strictObject({
      type: z.literal('ack'),
      epoch: Epoch,
      seq: z.int().min(0),
      beyond: z.strictObject({ seq: Seq, held: z.array(ExecutionIdSchema).min(1).max(16) }).optional(),
    }),
    CommandFrameSchema,
    /** The session has a higher epoch or is gone: the host ends this sandbox. */
    z.strictObject({ type: z.literal('fenced'), epoch: z.int().min(0) }),
    ...TRANSFER_DOWN_SCHEMAS,
  ]),
);
export type SessionLinkDown = z.infer<typeof SessionLinkDownSchema>;

const Sequenced = z.strictObject({ epoch: Epoch, seq: Seq });
const OfExecution = Sequenced.extend({ execution_id: ExecutionIdSchema });

/** Host to edge on a session link. All but `proof`, `hello` and those of transfers are numbered and kept until acknowledged. */
export const SessionLinkUpSchema = compiled(
  z.discriminatedUnion('type', [
    ProofFrameSchema,
    z.strictObject({
      type: z.literal('hello'),
      protocol: z.int(),
      session_id: SessionIdSchema,
      epoch: Epoch,
      /** Names one sequence of frames; a restarted host begins a new one. */
      stream_id: z.string().regex(/^lnk_[A-Za-z0-9_-]{22}$/),
      /** It runs executions of different tools at the same time. Without it, it runs one after the other. */
      lanes: z.literal(true).optional(),
      /** It reads what grants say of arguments, and looks at them again. Not said on a link of version 1. */
      constraints: z.literal(true).optional(),
      /** It stores the workspace beside a checkpoint where that is asked for. Not said on a link of version 1. */
      workspaces: z.literal(true).optional(),
    }),
    Sequenced.extend({
      type: z.literal('ready'),
      sandbox_id: z.string().max(128),
      image: ImageDigestSchema,
      runsc_version: z.string().max(64),
      runsc_platform: z.string().max(64),
      /** The snapshot that the sandbox was made of, or that its workspace is of. */
      snapshot_id: SnapshotIdSchema.optional(),
    }),
    Sequenced.extend({
      type: z.literal('started'),
      execution_id: ExecutionIdSchema,
      grant_jti: z.string(),
      started_at: z.iso.datetime(),
    }),
    /** Payload: bytes of the stream from `offset` on. Cut at UTF-8 character edges where the bytes are UTF-8. */
    Sequenced.extend({
      type: z.literal('output'),
      execution_id: ExecutionIdSchema,
      stream: StreamNameSchema,
      offset: z.int().min(0),
    }),
    /**
     * Sent before `finished` when a stream was longer than the inline head: payload is a piece of its last bytes,
     * from `offset` on.
     */
    Sequenced.extend({
      type: z.literal('tail'),
      execution_id: ExecutionIdSchema,
      stream: StreamNameSchema,
      offset: z.int().min(0),
    }),
    /** A piece of `value` (text), `structured` (JSON) or of rich result number `index`; `last` completes it. */
    Sequenced.extend({
      type: z.literal('part'),
      execution_id: ExecutionIdSchema,
      field: z.enum(['value', 'structured', 'result']),
      index: z.int().min(0).max(255),
      mime: z.string().max(128),
      last: z.boolean(),
    }),
    /** How many bytes of its input the program, or the host in its stead, has taken so far: a total, never less. */
    Sequenced.extend({
      type: z.literal('stdin_taken'),
      execution_id: ExecutionIdSchema,
      bytes: z.int().min(1),
    }),
    Sequenced.extend({
      type: z.literal('finished'),
      execution_id: ExecutionIdSchema,
      outcome: ExecutionOutcomeSchema,
      receipt: EnvelopeSchema,
    }),
    /** A grant was refused. Of an `execute` grant the execution ends as `refused`; nothing ran. */
    Sequenced.extend({
      type: z.literal('refused'),
      execution_id: ExecutionIdSchema.nullable(),
      grant_jti: z.string().nullable(),
      code: z.string().max(64),
      detail: z.string().max(1024),
    }),
    /** The sandbox is gone, and with it what the session kept in memory and files. */
    Sequenced.extend({
      type: z.literal('sandbox_lost'),
      /** `lease_lost`: the host could not reach the edge for so long that it ended the sandbox itself. */
      reason: z.enum(['oom', 'crashed', 'host_restarted', 'destroyed', 'lease_lost']),
    }),
    Sequenced.extend(SNAPSHOT_UP_FRAMES.paused),
    Sequenced.extend(SNAPSHOT_UP_FRAMES.resumed),
    Sequenced.extend(SNAPSHOT_UP_FRAMES.suspended),
    Sequenced.extend(SNAPSHOT_UP_FRAMES.suspend_failed),
    OfExecution.extend(PROGRAM_UP_FRAMES.tool_call),
    OfExecution.extend(PROGRAM_UP_FRAMES.tool_result_taken),
    OfExecution.extend(PROGRAM_UP_FRAMES.waiting),
    OfExecution.extend(PROGRAM_UP_FRAMES.continued),
    ...TRANSFER_UP_SCHEMAS,
  ]),
);
export type SessionLinkUp = z.infer<typeof SessionLinkUpSchema>;
export type SequencedUp = Extract<SessionLinkUp, { seq: number }>;
export type TransferUp = Extract<SessionLinkUp, { transfer_id: string }>;
export type TransferDown = Extract<SessionLinkDown, { transfer_id: string }>;

/** Edge to host on the control link. */
export const ControlLinkDownSchema = z.discriminatedUnion('type', [
  ChallengeFrameSchema,
  z.strictObject({
    type: z.literal('welcome'),
    key_set: z.string().max(16_384),
    epoch: Epoch,
    /** What time it is at the edge, for a host that said what time it has. */
    edge_time_ms: z.int().min(0).optional(),
    protocol: AgreedProtocol,
  }),
  z.strictObject({ type: z.literal('key_set'), key_set: z.string().max(16_384) }),
  /** Whether the host is to take no new sandboxes, as its operator wants it. */
  z.strictObject({ type: z.literal('drain'), draining: z.boolean() }),
  /** `attach` and, for a session whose own link is down, `destroy`. */
  CommandFrameSchema,
]);
export type ControlLinkDown = z.infer<typeof ControlLinkDownSchema>;

/** A name may stand for several; the first of them is meant by it. */
const OfferedImagesSchema = z
  .array(z.strictObject({ name: z.string().max(64), digest: ImageDigestSchema }))
  .max(256);

/** Host to edge on the control link. */
export const ControlLinkUpSchema = z.discriminatedUnion('type', [
  ProofFrameSchema,
  z.strictObject({
    type: z.literal('hello'),
    protocol: z.int(),
    host_id: HostIdSchema,
    agent_version: z.string().max(64),
    runsc_version: z.string().max(64),
    runsc_platform: z.string().max(64),
    /** What a snapshot must have been made with to be restored here; without it the host restores none. */
    cpu_features_sha256: Sha256Schema.optional(),
    /** Of the programs that it lays into a sandbox; not said on a link of version 1. */
    guest_sha256: Sha256Schema.optional(),
    images: OfferedImagesSchema,
    capacity: z.strictObject({ sandboxes: z.int().min(0) }),
    /** As `load` would say it; not said on a link of version 1. */
    sandboxes: z.int().min(0).optional(),
    /** By the host's own clock. One that is too far from the edge's gets no sessions: it would refuse every grant. */
    host_time_ms: z.int().min(0).optional(),
  }),
  z.strictObject({
    type: z.literal('load'),
    sandboxes: z.int().min(0),
    capacity: z.strictObject({ sandboxes: z.int().min(0) }),
    degraded: z.boolean(),
    /** The operator of the machine wants it empty. Left out while that is not so: edges before this one do not know it. */
    draining: z.literal(true).optional(),
    host_time_ms: z.int().min(0).optional(),
  }),
  /** All images that the host has now, instead of those that it told before. */
  z.strictObject({ type: z.literal('images'), images: OfferedImagesSchema }),
  /** A command from the control link was refused; nothing was made. */
  z.strictObject({
    type: z.literal('refused'),
    session_id: SessionIdSchema,
    tenant: z.string(),
    epoch: Epoch,
    code: z.string().max(64),
    detail: z.string().max(1024),
  }),
  /** A `destroy` from the control link was carried out, or there was nothing to destroy. */
  z.strictObject({
    type: z.literal('destroyed'),
    session_id: SessionIdSchema,
    tenant: z.string(),
    epoch: Epoch,
  }),
]);
export type ControlLinkUp = z.infer<typeof ControlLinkUpSchema>;

const MAX_HEADER_BYTES = 0xffff;
const NO_PAYLOAD: Uint8Array = new Uint8Array(0);

export function encodeFrame(header: object, payload: Uint8Array = NO_PAYLOAD): Uint8Array<ArrayBuffer> {
  return concatBytes([encodeFrameHead(header), payload]);
}

/**
 * What stands before the payload, for a sender that puts the two together itself. Throws on a header over 65,535 bytes:
 * its schema would have let something unbounded in.
 */
export function encodeFrameHead(header: object): Uint8Array<ArrayBuffer> {
  const headerBytes = utf8(JSON.stringify(header));
  if (headerBytes.length > MAX_HEADER_BYTES) {
    throw new RangeError(
      `a header of at most ${MAX_HEADER_BYTES} bytes was expected, not ${headerBytes.length}`,
    );
  }
  const head = new Uint8Array(2 + headerBytes.length);
  head[0] = headerBytes.length >> 8;
  head[1] = headerBytes.length & 0xff;
  head.set(headerBytes, 2);
  return head;
}

const headerDecoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Splits and parses a frame; any malformation is `protocol_violation`. */
export function decodeFrame<Header>(
  message: ArrayBuffer | Uint8Array,
  schema: z.ZodType<Header>,
): Outcome<{ header: Header; payload: Uint8Array }> {
  const bytes = message instanceof Uint8Array ? message : new Uint8Array(message);
  if (bytes.length < 2 || bytes.length > MAX_FRAME_BYTES) {
    return failure(
      'protocol_violation',
      `a frame of 2 to ${MAX_FRAME_BYTES} bytes was expected, not ${bytes.length}`,
    );
  }
  const headerEnd = 2 + (((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0));
  if (headerEnd > bytes.length) return failure('protocol_violation', 'the header is longer than the frame');
  let json: unknown;
  try {
    json = JSON.parse(headerDecoder.decode(bytes.subarray(2, headerEnd)));
  } catch {
    return failure('protocol_violation', 'the header is not JSON in UTF-8');
  }
  const parsed = schema.safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    return failure(
      'protocol_violation',
      `header.${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'wrong'}`,
    );
  }
  return success({ header: parsed.data, payload: bytes.subarray(headerEnd) });
}
