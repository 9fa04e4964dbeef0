/**
 * Programs in code mode: code in a kernel of the session that calls the caller's tools as functions. A call leaves the
 * guest as a frame, and its result comes back by a grant; nothing is ever run again to get there.
 */
import * as z from 'zod';
import { CallbackSchema } from './callback.ts';
import { ExecutionSchema } from './execution.ts';
import { ExecutionIdSchema } from './ids.ts';
import { MAX_ARGUMENTS_BYTES, MAX_TIMEOUT_MS } from './limits.ts';
import { NodeArgumentsSchema, PythonArgumentsSchema } from './tool.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

/** Arguments of one call as JSON in UTF-8. */
export const MAX_CALL_ARGUMENTS_BYTES = MAX_ARGUMENTS_BYTES;
/** A result as JSON in UTF-8, what stands around it on the wire left out. */
export const MAX_CALL_RESULT_BYTES = MAX_ARGUMENTS_BYTES - 16 * KIB;
/** Calls of one program without an answer that leave the guest; further ones wait in it. */
export const MAX_CALLS_OUTSTANDING = 32;
/** Their arguments that a host keeps, all together: a call beyond them fails. */
export const MAX_CALLS_OUTSTANDING_BYTES = 8 * MIB;
export const MAX_PROGRAM_TOOLS = 128;
export const MAX_TOOL_NAME_CHARACTERS = 128;
export const MAX_CALLS_OF_A_PROGRAM = 10_000;
export const DEFAULT_CALLS_OF_A_PROGRAM = 200;
export const DEFAULT_PROGRAM_BYTES = 16 * MIB;
export const MAX_PROGRAM_BYTES = 256 * MIB;
export const DEFAULT_WAIT_TIMEOUT_S = 7 * 86_400;
export const MAX_WAIT_TIMEOUT_S = 30 * 86_400;
const MAX_DOCUMENTATION_CHARACTERS = 32 * KIB;
const MAX_TYPE_CHARACTERS = 8 * KIB;

/** A tool as the guest makes a function of it. */
export const ProgramToolSchema = z.strictObject({
  name: z.string().min(1).max(MAX_TOOL_NAME_CHARACTERS),
  /** Where it stands below `tools`. */
  path: z.array(z.string().min(1).max(160)).min(1).max(8),
  /** What a person or a model reads of it, in the language of the program. */
  documentation: z.string().max(MAX_DOCUMENTATION_CHARACTERS),
  /** In their order, where each can be given by its name; else the function takes one object. */
  parameters: z
    .array(
      z.strictObject({
        name: z.string().max(128),
        type: z.string().max(MAX_TYPE_CHARACTERS),
        required: z.boolean(),
      }),
    )
    .max(256)
    .nullable(),
  returns: z.string().max(MAX_TYPE_CHARACTERS),
});
export type ProgramTool = z.infer<typeof ProgramToolSchema>;

const ProgramPartSchema = z.strictObject({
  tools: z.array(ProgramToolSchema).max(MAX_PROGRAM_TOOLS),
  /** Found as `tools.arguments`; agents of former versions do not know it. */
  arguments: z.record(z.string(), z.unknown()).optional(),
});

/** Payload of an `execute` grant of a program: the arguments of its kernel, and the tools that it finds. */
export const PROGRAM_ARGUMENTS = {
  python: PythonArgumentsSchema.extend({ program: ProgramPartSchema.optional() }),
  node: NodeArgumentsSchema.extend({ program: ProgramPartSchema.optional() }),
} as const;

export const CallNumberSchema = z.int().min(1).max(1_000_000);

/** Why a call of a tool raised: codes that a program can tell apart. */
export const CallErrorSchema = z.strictObject({
  code: z.string().min(1).max(64),
  message: z.string().max(8_192),
});
export type CallError = z.infer<typeof CallErrorSchema>;

/** Payload of a `tool_result` grant. */
export const CallAnswerSchema = z.union([
  z.strictObject({ call: CallNumberSchema, result: z.unknown() }),
  z.strictObject({ call: CallNumberSchema, error: CallErrorSchema }),
]);
export type CallAnswer = z.infer<typeof CallAnswerSchema>;

/** Frames of a host about a program, numbered like all that it says of executions. */
export const PROGRAM_UP_FRAMES = {
  /** Payload: a piece of the arguments (JSON in UTF-8) from `offset` on. Numbers of calls rise by one from 1. */
  tool_call: {
    type: z.literal('tool_call'),
    call: CallNumberSchema,
    name: z.string().min(1).max(MAX_TOOL_NAME_CHARACTERS),
    offset: z.int().min(0).max(MAX_CALL_ARGUMENTS_BYTES),
    last: z.boolean(),
  },
  /** The program has the answer, or will never want it. */
  tool_result_taken: { type: z.literal('tool_result_taken'), call: CallNumberSchema },
  /** All that the program does is wait for tools: its clock stands still, with so much time left on it. */
  waiting: { type: z.literal('waiting'), left_ms: z.int().min(0).max(MAX_TIMEOUT_MS) },
  /** The clock goes on. */
  continued: { type: z.literal('continued'), left_ms: z.int().min(0).max(MAX_TIMEOUT_MS) },
} as const;

export const ProgramIdSchema = z.string().regex(/^exe_[A-Za-z0-9_-]{22}$/);
export const InnerCallIdSchema = z.string().regex(/^tcl_[A-Za-z0-9_-]{22}$/);

export const ProgramLimitsSchema = z.strictObject({
  calls: z
    .int()
    .min(0)
    .max(MAX_CALLS_OF_A_PROGRAM)
    .default(DEFAULT_CALLS_OF_A_PROGRAM)
    .describe('Calls of tools.'),
  writes: z
    .int()
    .min(0)
    .max(MAX_CALLS_OF_A_PROGRAM)
    .default(DEFAULT_CALLS_OF_A_PROGRAM)
    .describe('Of them, calls of tools that may change something.'),
  bytes: z
    .int()
    .min(0)
    .max(MAX_PROGRAM_BYTES)
    .default(DEFAULT_PROGRAM_BYTES)
    .describe('Arguments and results of all calls together, as JSON.'),
  timeout_ms: z
    .int()
    .min(1)
    .max(MAX_TIMEOUT_MS)
    .default(60_000)
    .describe('Time that the program runs; waiting for tools does not count.'),
  wait_timeout_s: z
    .int()
    .min(1)
    .max(MAX_WAIT_TIMEOUT_S)
    .default(DEFAULT_WAIT_TIMEOUT_S)
    .describe('How long a call waits for its caller before it fails in the program.'),
});
export type ProgramLimits = z.infer<typeof ProgramLimitsSchema>;

export const ProgramLanguageSchema = z.enum(['python', 'javascript']);
/** The tool whose kernel runs the language. */
export const KERNELS = { python: 'python', javascript: 'node' } as const;

/** Body of `POST /v1/sessions/{id}/programs`. */
export const CreateProgramSchema = z.strictObject({
  language: ProgramLanguageSchema,
  code: z.string().max(MAX_ARGUMENTS_BYTES).describe('Source. The last expression becomes `value`.'),
  tools: z
    .array(z.string().min(1).max(MAX_TOOL_NAME_CHARACTERS))
    .max(MAX_PROGRAM_TOOLS)
    .optional()
    .describe('Names of the tools that the program may call; without it all that the caller may call.'),
  arguments: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('Data that the program finds as `tools.arguments`.'),
  limits: ProgramLimitsSchema.prefault({}),
  stream: z.boolean().default(false),
  detach: z.boolean().default(false),
  callback: CallbackSchema.optional().describe('Only with `detach`: is told when the program has ended.'),
});
export type CreateProgram = z.infer<typeof CreateProgramSchema>;

/** The tool of models and MCP clients that runs a program. */
export const CODE_TOOL_NAME = 'code';

/** Its arguments: a program, or one that was begun before. */
export const CodeArgumentsSchema = z.strictObject({
  language: ProgramLanguageSchema.optional(),
  code: CreateProgramSchema.shape.code.optional(),
  program_id: ProgramIdSchema.optional().describe(
    'In place of language and code: a program that was waiting, to learn what became of it.',
  ),
});
export type CodeArguments = z.infer<typeof CodeArgumentsSchema>;

/**
 * `awaiting_approval`: somebody else has to allow it first. `unknown`: it was begun, and its end was not seen. `void`: the
 * program ended first.
 */
export const InnerCallStatusSchema = z.enum([
  'awaiting_approval',
  'pending',
  'running',
  'succeeded',
  'failed',
  'refused',
  'unknown',
  'void',
]);
export type InnerCallStatus = z.infer<typeof InnerCallStatusSchema>;

export const InnerCallSchema = z.object({
  id: InnerCallIdSchema,
  execution_id: ExecutionIdSchema.describe('The call as an execution of the session, with a receipt.'),
  tool_name: z.string(),
  status: InnerCallStatusSchema,
  arguments_bytes: z.int(),
  result_bytes: z.int().nullable(),
  error: CallErrorSchema.nullable(),
  created_at: z.iso.datetime(),
  finished_at: z.iso.datetime().nullable(),
});
export type InnerCall = z.infer<typeof InnerCallSchema>;

/** A call that the caller of the program executes. */
export const PendingCallSchema = z.object({
  id: InnerCallIdSchema,
  tool_name: z.string(),
  arguments: z.record(z.string(), z.unknown()),
});
export type PendingCall = z.infer<typeof PendingCallSchema>;

export const ProgramSchema = z.object({
  program_id: ProgramIdSchema.describe('Also the id of its execution.'),
  session_id: z.string(),
  parent_program_id: ProgramIdSchema.nullable().describe(
    'Of one that goes on in a fork of its session: the program that was forked.',
  ),
  language: ProgramLanguageSchema,
  status: ExecutionSchema.shape.status,
  pending: z.array(PendingCallSchema).describe('To be answered at `…/tool_results`.'),
  calls: z.array(InnerCallSchema).describe('In the order in which they were made; the newest 1,000.'),
  limits: ProgramLimitsSchema,
  used: z.object({ calls: z.int(), writes: z.int(), bytes: z.int() }),
  execution: ExecutionSchema,
});
export type Program = z.infer<typeof ProgramSchema>;

/** One answer: text or data, or why there is none. */
export const ToolResultSchema = z
  .strictObject({
    id: InnerCallIdSchema,
    content: z.string().optional().describe('The result as text.'),
    structured: z.unknown().optional().describe('The result as data.'),
    error: z
      .union([
        z.string().max(8_192),
        z.strictObject({
          code: CallErrorSchema.shape.code.default('tool_failed'),
          message: CallErrorSchema.shape.message,
        }),
      ])
      .optional()
      .describe('Raised in the program.'),
  })
  .refine(
    (result) =>
      [result.content, result.structured, result.error].filter((one) => one !== undefined).length === 1,
    'one of content, structured and error',
  );
export type ToolResult = z.infer<typeof ToolResultSchema>;

/** Body of `POST /v1/sessions/{id}/programs/{pid}/tool_results`. */
export const ToolResultsSchema = z.strictObject({
  results: z.array(ToolResultSchema).min(1).max(MAX_CALLS_OUTSTANDING),
  detach: z
    .boolean()
    .default(false)
    .describe('Answer at once, and not when the program waits again or has ended.'),
});
