/** A self-healing run: code that is run, and mended by a model where it fails. */
import * as z from 'zod';
import { CallbackSchema } from './callback.ts';
import { ExecutionIdSchema, RepairRunIdSchema, SessionIdSchema } from './ids.ts';
import { ExecutionStatusSchema } from './lifecycle.ts';
import { DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS } from './limits.ts';

export const MAX_REPAIRS = 10;
const MAX_CODE_CHARACTERS = 262_144;

/** Body of `POST /v1/sessions/{id}/repair_runs`. */
export const CreateRepairRunSchema = z.strictObject({
  language: z.enum(['python', 'node']).default('python'),
  code: z.string().min(1).max(MAX_CODE_CHARACTERS),
  task: z.string().max(16_384).optional().describe('What the code is for, in words.'),
  max_retries: z.int().min(0).max(MAX_REPAIRS).default(3).describe('Repairs at most.'),
  timeout_ms: z.int().min(1).max(MAX_TIMEOUT_MS).default(DEFAULT_TIMEOUT_MS).describe('Of each attempt.'),
  model: z
    .strictObject({
      tool_name: z
        .string()
        .min(1)
        .max(128)
        .optional()
        .describe('A registered `http` tool whose address is a chat completions endpoint as OpenAI has it.'),
      provider: z
        .literal('workers_ai')
        .optional()
        .describe('In place of a tool: a model of Workers AI that this edge offers.'),
      name: z.string().min(1).max(256).describe('Model that is asked.'),
      max_tokens: z.int().min(1).max(1_000_000).optional(),
      timeout_ms: z.int().min(1_000).max(600_000).default(120_000).describe('Of each answer of the model.'),
    })
    .refine(({ tool_name, provider }) => (tool_name === undefined) !== (provider === undefined), {
      message: 'one of tool_name and provider',
    }),
  callback: CallbackSchema.optional().describe('Is told when the run has ended.'),
});
export type CreateRepairRun = z.infer<typeof CreateRepairRunSchema>;

export const RepairStatusSchema = z.enum(['running', 'succeeded', 'failed', 'cancelled']);

/** Why a run made no further attempt. */
export const RepairStopSchema = z.enum([
  'succeeded',
  'out_of_retries',
  'repeated_code',
  'repeated_error',
  'no_code',
  'not_repairable',
  'model_failed',
  'refused',
  'cancelled',
]);
export type RepairStop = z.infer<typeof RepairStopSchema>;

export const RepairAttemptSchema = z.object({
  attempt: z.int().min(1),
  execution_id: ExecutionIdSchema.nullable(),
  status: ExecutionStatusSchema,
  /** Last line of what it said when it failed. */
  error: z.string().nullable(),
  code: z.string(),
  /** Against the attempt before, as a unified diff; null for the first. */
  diff: z.string().nullable(),
  /** Whether what it did to the session was taken back. */
  rolled_back: z.boolean(),
});
export type RepairAttempt = z.infer<typeof RepairAttemptSchema>;

export const RepairRunSchema = z.object({
  repair_run_id: RepairRunIdSchema,
  session_id: SessionIdSchema,
  status: RepairStatusSchema,
  stopped_because: RepairStopSchema.nullable(),
  detail: z.string().nullable(),
  attempts: z.array(RepairAttemptSchema),
  created_at: z.iso.datetime(),
  finished_at: z.iso.datetime().nullable(),
});
export type RepairRun = z.infer<typeof RepairRunSchema>;
