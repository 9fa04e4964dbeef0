/** Programs that outlive calls, at a checkpoint. */
import * as z from 'zod';
import {
  MAX_COMMAND_BYTES,
  MAX_ENDED_PROGRAMS,
  MAX_PROCESSES,
  MAX_TERMINALS,
  PROCESS_LOG_BYTES,
  ProcessStreamSchema,
  TERMINAL_REPLAY_BYTES,
} from '../../../shared/program.ts';

const MAX_PATH_CHARACTERS = 8_192;
/** One that waits for a reader holds more than its replay. */
const MAX_KEPT_CHARACTERS = 4 * (PROCESS_LOG_BYTES + TERMINAL_REPLAY_BYTES);

const CarriedRingSchema = z.strictObject({
  start_offset: z.int().min(0),
  pieces: z.array(
    z.strictObject({
      stream: ProcessStreamSchema,
      offset: z.int().min(0),
      bytes: z.base64().max(MAX_KEPT_CHARACTERS),
    }),
  ),
  end_offset: z.int().min(0),
});
export type CarriedRing = z.infer<typeof CarriedRingSchema>;

const CarriedProgramSchema = z.strictObject({
  id: z.string().max(64),
  command: z.string().max(MAX_COMMAND_BYTES),
  cwd: z.string().max(MAX_PATH_CHARACTERS),
  started_at_ms: z.number(),
  ring: CarriedRingSchema,
  input_at: z.int().min(0).optional(),
  incomplete: z.strictObject({ stdout: z.base64(), stderr: z.base64() }),
  end: z
    .strictObject({
      exitCode: z.int().nullable(),
      signal: z.string().nullable(),
      endedAtMs: z.number(),
    })
    .nullable(),
  /** Of its channel, unless nothing of it is left. */
  channel: z.int().min(1).nullable(),
});
export type CarriedProgram = z.infer<typeof CarriedProgramSchema>;

export const CarriedProgramsSchema = z.strictObject({
  terminals: z.array(CarriedProgramSchema).max(MAX_TERMINALS + MAX_ENDED_PROGRAMS),
  processes: z.array(CarriedProgramSchema).max(MAX_PROCESSES + MAX_ENDED_PROGRAMS),
});
export type CarriedPrograms = z.infer<typeof CarriedProgramsSchema>;
