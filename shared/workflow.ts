/** A workflow: a graph of tool calls over one or several sessions, and how it stands. */
import * as z from 'zod';
import { CallbackSchema } from './callback.ts';
import { CreateProgramSchema } from './code-mode.ts';
import { utf8 } from './encoding.ts';
import { ExecutionIdSchema, SessionIdSchema, WorkflowIdSchema } from './ids.ts';
import { ExecutionStatusSchema } from './lifecycle.ts';
import { MAX_TIMEOUT_MS } from './limits.ts';
import { CreateSessionSchema, LabelsSchema } from './session.ts';

export const MAX_WORKFLOW_TASKS = 64;
/** Of all tasks together, if every list were as long and every call failed as often as it may. */
export const MAX_WORKFLOW_CALLS = 5_000;
export const MAX_FAN_OUT = 100;
export const MAX_PARALLEL_CALLS = 16;
export const MAX_WORKFLOW_SESSIONS = 8;
export const MAX_WORKFLOW_ATTEMPTS = 5;
const MAX_WORKFLOW_TIMEOUT_S = 7 * 86_400;
const DEFAULT_WORKFLOW_TIMEOUT_S = 3_600;
/** Of its JSON: a step of the engine keeps it, written as a text once more, in at most 1 MiB. */
export const MAX_WORKFLOW_BYTES = 262_144;

const NameSchema = z.string().regex(/^[A-Za-z][A-Za-z0-9_-]{0,63}$/);
/** RFC 6901: empty for the whole, else `/` before each step. */
const JsonPointerSchema = z
  .string()
  .max(1_024)
  .regex(/^(\/([^/~]|~[01])*)*$/);

/** Where a value comes from: what a task gave, the workflow's input, or the item of a fan-out. */
export const ReferenceSchema = z.union([
  z.strictObject({ $from: NameSchema, path: JsonPointerSchema.default('') }),
  z.strictObject({ $input: JsonPointerSchema }),
  z.strictObject({ $item: JsonPointerSchema }),
]);
export type Reference = z.infer<typeof ReferenceSchema>;

const ComparisonSchema = z.strictObject({
  value: ReferenceSchema,
  equals: z.json().optional(),
  not_equals: z.json().optional(),
  exists: z.boolean().optional(),
  greater_than: z.number().optional(),
  less_than: z.number().optional(),
});

export interface Combination {
  all?: Condition[] | undefined;
  any?: Condition[] | undefined;
  not?: Condition | undefined;
}
export type Comparison = z.infer<typeof ComparisonSchema>;
export type Condition = Comparison | Combination;

export const ConditionSchema: z.ZodType<Condition> = z.lazy(() =>
  z.union([
    ComparisonSchema,
    z.strictObject({
      all: z.array(ConditionSchema).min(1).max(16).optional(),
      any: z.array(ConditionSchema).min(1).max(16).optional(),
      not: ConditionSchema.optional(),
    }),
  ]),
);

const RetriesSchema = z.strictObject({
  max_attempts: z.int().min(2).max(MAX_WORKFLOW_ATTEMPTS),
  delay_ms: z.int().min(0).max(3_600_000).default(1_000),
  backoff: z.enum(['constant', 'exponential']).default('exponential'),
});

const TaskProgramSchema = CreateProgramSchema.pick({ language: true, code: true, tools: true, limits: true });
export type TaskProgram = z.infer<typeof TaskProgramSchema>;

const TaskSchema = z.strictObject({
  tool_name: z.string().min(1).max(128).optional().describe('The tool that it calls.'),
  program: TaskProgramSchema.optional().describe('Or the program that it runs.'),
  arguments: z
    .record(z.string(), z.unknown())
    .default({})
    .describe(
      'Arguments of the tool, or what the program finds as `tools.arguments`. `{"$from": task, "path": pointer}`, `{"$input": pointer}` and `{"$item": pointer}` anywhere in them stand for a value; `{"$join": [parts]}` for their text one behind the other; `{"$literal": x}` for x as it is.',
    ),
  session: NameSchema.default('main').describe('Name of the session, of `sessions`.'),
  depends_on: z
    .array(NameSchema)
    .max(MAX_WORKFLOW_TASKS)
    .default([])
    .describe('Tasks that have to end before it, beside those that it refers to.'),
  run_on: z
    .enum(['success', 'failure', 'always'])
    .default('success')
    .describe('Whether it runs where all of them succeeded, where one did not, or either way.'),
  when: ConditionSchema.optional().describe('Runs only where this holds; otherwise it is skipped.'),
  for_each: ReferenceSchema.optional().describe(
    `One call for each item of this list of at most ${MAX_FAN_OUT}.`,
  ),
  max_parallel: z.int().min(1).max(MAX_PARALLEL_CALLS).default(4),
  retries: RetriesSchema.optional().describe('Only for tools that say they are `read` or `idempotent`.'),
  timeout_ms: z.int().min(1).max(MAX_TIMEOUT_MS).optional(),
  may_fail: z.boolean().default(false).describe('Its failure does not make the workflow fail.'),
});
export const WorkflowTaskSchema = TaskSchema.refine(
  ({ tool_name, program }) => (tool_name === undefined) !== (program === undefined),
  { message: 'one of tool_name and program', path: ['tool_name'] },
);
export type WorkflowTask = z.infer<typeof WorkflowTaskSchema>;

const WorkflowSessionSchema = z.union([
  z.strictObject({ session_id: SessionIdSchema }),
  z.strictObject({ create: CreateSessionSchema.omit({ metadata: true, idle_timeout_s: true }) }),
]);
export type WorkflowSession = z.infer<typeof WorkflowSessionSchema>;

/** Body of `POST /v1/workflows`. */
export const CreateWorkflowSchema = z
  .strictObject({
    name: z.string().min(1).max(128).optional(),
    labels: LabelsSchema.default({}).describe('By which it is found in the list.'),
    input: z.json().default(null),
    sessions: z
      .record(NameSchema, WorkflowSessionSchema)
      .refine((sessions) => Object.keys(sessions).length <= MAX_WORKFLOW_SESSIONS, {
        message: `at most ${MAX_WORKFLOW_SESSIONS} sessions`,
      })
      .default({})
      .describe('Sessions by name: one that exists, or one that lives as long as the workflow.'),
    tasks: z.record(NameSchema, WorkflowTaskSchema).refine((tasks) => {
      const count = Object.keys(tasks).length;
      return count >= 1 && count <= MAX_WORKFLOW_TASKS;
    }, `1 to ${MAX_WORKFLOW_TASKS} tasks`),
    on_failure: z
      .enum(['stop', 'continue'])
      .default('stop')
      .describe('Whether a failed task keeps tasks from starting that do not depend on it.'),
    timeout_s: z.int().min(1).max(MAX_WORKFLOW_TIMEOUT_S).default(DEFAULT_WORKFLOW_TIMEOUT_S),
    callback: CallbackSchema.optional().describe('Is told when the workflow has ended.'),
  })
  .refine((workflow) => utf8(JSON.stringify(workflow)).length <= MAX_WORKFLOW_BYTES, {
    message: `a workflow of at most ${MAX_WORKFLOW_BYTES} bytes as JSON`,
  });
export type CreateWorkflow = z.infer<typeof CreateWorkflowSchema>;

export const WorkflowStatusSchema = z.enum(['running', 'succeeded', 'failed', 'timeout', 'cancelled']);
export type WorkflowStatus = z.infer<typeof WorkflowStatusSchema>;

export const TaskStatusSchema = z.enum(['pending', 'running', 'succeeded', 'failed', 'skipped', 'cancelled']);
export type TaskStatus = z.infer<typeof TaskStatusSchema>;

/** One call of a task. Its whole result is the execution's. */
export const TaskCallSchema = z.object({
  /** Place in the list of a fan-out. */
  item: z.int().nullable(),
  attempt: z.int().min(1),
  session_id: SessionIdSchema,
  execution_id: ExecutionIdSchema,
  status: ExecutionStatusSchema,
});
export type TaskCall = z.infer<typeof TaskCallSchema>;

export const TaskViewSchema = z.object({
  /** Of a program the tool of its language. */
  tool_name: z.string(),
  kind: z.enum(['tool', 'program']),
  status: TaskStatusSchema,
  /** Why it failed or was skipped. */
  reason: z.string().nullable(),
  calls: z.array(TaskCallSchema),
});
export type TaskView = z.infer<typeof TaskViewSchema>;

/** As lists have it. */
export const WorkflowEntrySchema = z.object({
  workflow_id: WorkflowIdSchema,
  name: z.string().nullable(),
  labels: z.record(z.string(), z.string()),
  status: WorkflowStatusSchema,
  reason: z.string().nullable(),
  created_at: z.iso.datetime(),
  finished_at: z.iso.datetime().nullable(),
});
export type WorkflowEntry = z.infer<typeof WorkflowEntrySchema>;

export const WorkflowListSchema = z.object({
  workflows: z.array(WorkflowEntrySchema),
  next_cursor: z.string().nullable(),
});
export type WorkflowList = z.infer<typeof WorkflowListSchema>;

export const WorkflowSchema = WorkflowEntrySchema.extend({
  /** Sessions by their name in the workflow, those that were made so far. */
  sessions: z.record(z.string(), SessionIdSchema),
  tasks: z.record(z.string(), TaskViewSchema),
});
export type Workflow = z.infer<typeof WorkflowSchema>;

/** What tasks may refer to of a call: enough to go on with, never more than a step may keep. */
export const CallResultSchema = z.object({
  /** Null where nothing was run. */
  execution_id: ExecutionIdSchema.nullable(),
  session_id: SessionIdSchema.nullable(),
  status: ExecutionStatusSchema,
  exit_code: z.int().nullable(),
  value: z.string().nullable(),
  structured: z.unknown().nullable(),
  stdout: z.string(),
  stderr: z.string(),
  /** Standard output as JSON, where it is that. */
  json: z.unknown().nullable(),
  error: z.object({ name: z.string(), message: z.string() }).nullable(),
});
export type CallResult = z.infer<typeof CallResultSchema>;
