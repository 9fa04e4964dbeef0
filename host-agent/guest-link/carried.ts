/** The host's side of a guest at a checkpoint: what a link, its programs and kernels need to go on elsewhere. */
import * as z from 'zod';
import { MAX_CALLS_OUTSTANDING } from '../../shared/code-mode.ts';

const MAX_CARRIED_CHANNELS = 128;
/** At least the largest window of a stream. */
const MAX_CREDIT_BYTES = 1024 * 1024;
const ChannelIdSchema = z.int().min(1).max(0xffff_ffff);
const CreditSchema = z.int().min(0).max(MAX_CREDIT_BYTES);

const CarriedInputSchema = z.strictObject({
  credit: z.int().min(0).max(MAX_CREDIT_BYTES),
  is_closed: z.boolean(),
  is_ending: z.boolean(),
  /** Taken from whoever writes and not sent to the guest. */
  waiting: z.base64(),
});
export type CarriedInput = z.infer<typeof CarriedInputSchema>;

const CarriedChannelSchema = z.strictObject({
  id: ChannelIdSchema,
  pid: z.int().min(0),
  stdin: CarriedInputSchema,
  control: CarriedInputSchema,
  /** What the guest may yet send of each stream. */
  credit: z.strictObject({ stdout: CreditSchema, stderr: CreditSchema, control: CreditSchema }),
  window_bytes: z.int().min(4).max(MAX_CREDIT_BYTES).optional(),
  exit: z
    .strictObject({
      exitCode: z.int().nullable(),
      signal: z.string().nullable(),
      cpuMs: z.number(),
      maxRssBytes: z.number(),
    })
    .nullable(),
  is_gone: z.boolean(),
  is_released: z.boolean(),
});
export type CarriedChannel = z.infer<typeof CarriedChannelSchema>;

export const CarriedLinkSchema = z.strictObject({
  next_channel: ChannelIdSchema,
  channels: z.array(CarriedChannelSchema).max(MAX_CARRIED_CHANNELS),
});
export type CarriedLink = z.infer<typeof CarriedLinkSchema>;

export const CarriedKernelSchema = z.strictObject({
  channel: ChannelIdSchema,
  cells: z.int().min(0),
  /** What came of a message that is not whole yet. */
  pending: z.base64(),
  running: z
    .strictObject({
      id: z.string(),
      stdin: z.enum(['none', 'expected', 'ready']),
      /**
       * Of a cell that may call tools: the number of its last call, those that have no answer, and whether it waits for
       * nothing else, null where it has not said that it waits.
       */
      program: z
        .strictObject({
          last_call: z.int().min(0),
          outstanding: z.array(z.int().min(1)).max(MAX_CALLS_OUTSTANDING),
          rests: z.boolean().nullable(),
        })
        .optional(),
    })
    .nullable(),
});
export type CarriedKernel = z.infer<typeof CarriedKernelSchema>;

const CarriedShellStateSchema = z.strictObject({ cwd: z.base64(), environment: z.base64() });

export const CarriedShellSchema = z.strictObject({
  state: CarriedShellStateSchema,
  template: ChannelIdSchema.nullable(),
  spare: ChannelIdSchema.nullable(),
  background: z.array(ChannelIdSchema).max(MAX_CARRIED_CHANNELS),
  running: z
    .strictObject({
      channel: ChannelIdSchema,
      pending: z.base64(),
      messages: z.int().min(0),
      saved: CarriedShellStateSchema.nullable(),
    })
    .nullable(),
});
export type CarriedShell = z.infer<typeof CarriedShellSchema>;

/** Of the file tool: the server that waits for the next call. */
export const CarriedFilesSchema = z.strictObject({ server: ChannelIdSchema.nullable() });
export type CarriedFiles = z.infer<typeof CarriedFilesSchema>;
