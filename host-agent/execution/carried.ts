/** An execution at a checkpoint, as its host knew it: what another host needs to go on with it under the same id. */
import * as z from 'zod';
import { RelaySchema } from '../../shared/grant.ts';
import { HostIdSchema } from '../../shared/ids.ts';
import { INLINE_TAIL_BYTES, STDIN_WINDOW_BYTES } from '../../shared/limits.ts';
import { FormerHostsSchema } from '../../shared/receipt.ts';
import { CarriedDigestSchema } from '../digest/stream-digest.ts';
import { StartedEntrySchema } from '../journal/entries.ts';
import { CarriedSandboxSchema } from '../sandbox/checkpoint/carried.ts';

const MAX_RUNS = 8;
const BASE64_GROWTH = 1.4;
/** What a guest may send before it is heard, and what waits beside it for a reader. */
const MAX_WAITING_CHARACTERS = 8 * 1024 * 1024;

const CarriedQueueSchema = z.strictObject({
  offset: z.int().min(0),
  head_end: z.int().min(0).nullable(),
  waiting: z.base64().max(MAX_WAITING_CHARACTERS),
});
export type CarriedQueue = z.infer<typeof CarriedQueueSchema>;

const CarriedStreamSchema = z.strictObject({
  total_bytes: z.int().min(0),
  digest: CarriedDigestSchema,
  queue: CarriedQueueSchema,
  tail: z.base64().max(Math.ceil(INLINE_TAIL_BYTES * BASE64_GROWTH)),
});
export type CarriedStream = z.infer<typeof CarriedStreamSchema>;

const CarriedOutputSchema = z.strictObject({ stdout: CarriedStreamSchema, stderr: CarriedStreamSchema });
export type CarriedOutput = z.infer<typeof CarriedOutputSchema>;

const CarriedStdinSchema = z.strictObject({
  taken_bytes: z.int().min(0),
  has_hole: z.boolean(),
  /** What came and is not with the program, in order; an empty one is the end. */
  waiting: z.array(z.base64().max(Math.ceil(STDIN_WINDOW_BYTES * BASE64_GROWTH))).max(4096),
});
export type CarriedStdin = z.infer<typeof CarriedStdinSchema>;

export const CarriedRunSchema = z.strictObject({
  started: StartedEntrySchema,
  relay: RelaySchema,
  /** How long it has run so far. */
  wall_ms: z.number().min(0),
  output: CarriedOutputSchema,
  stdin: CarriedStdinSchema,
  /** Those that it ran on, in order, the one that made the checkpoint last. */
  hosts: FormerHostsSchema,
});
export type CarriedRun = z.infer<typeof CarriedRunSchema>;

/** The file beside what gVisor wrote. */
export const HOST_STATE_FILE = 'host.json';
/** Room for the logs of as many programs as there can be, with the streams of what runs. */
export const MAX_HOST_STATE_BYTES = 72 * 1024 * 1024;

export const HostStateSchema = z.strictObject({
  v: z.literal(1),
  host_id: HostIdSchema,
  sandbox: CarriedSandboxSchema,
  /** Of each tool one at most. */
  runs: z.array(CarriedRunSchema).max(MAX_RUNS),
});
export type HostState = z.infer<typeof HostStateSchema>;
