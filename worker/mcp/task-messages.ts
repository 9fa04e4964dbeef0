/** Messages of the extension `io.modelcontextprotocol/tasks`, and what the gateway itself reads of them. */
import * as z from 'zod';
import type { RequestId } from './cancellation.ts';

export const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks';

/** Data of the error for a client that uses tasks and does not say that it knows them. */
export const MISSING_TASKS = { requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } };

export const TaskParamsSchema = z.looseObject({ taskId: z.string() });
const UpdateParamsSchema = TaskParamsSchema.extend({
  inputResponses: z.record(z.string(), z.unknown()),
});

export type TaskMethod = 'tasks/get' | 'tasks/cancel' | 'tasks/update';

export const TASK_PARAMETERS: Readonly<Record<TaskMethod, z.ZodType>> = {
  'tasks/get': TaskParamsSchema,
  'tasks/cancel': TaskParamsSchema,
  'tasks/update': UpdateParamsSchema,
};

const CapabilitiesSchema = z.object({ extensions: z.record(z.string(), z.unknown()) });
const ListenSchema = z.object({
  id: z.union([z.string(), z.number()]),
  method: z.literal('subscriptions/listen'),
  params: z.object({
    notifications: z.object({ taskIds: z.array(z.unknown()) }),
    _meta: z.object({ 'io.modelcontextprotocol/clientCapabilities': z.unknown() }),
  }),
});

/** The request that wants to hear of tasks, where its client does not say that it knows them. */
export function undeclaredTaskListener(body: unknown): RequestId | undefined {
  const listen = ListenSchema.safeParse(body);
  if (!listen.success) return undefined;
  const { _meta: meta } = listen.data.params;
  const declared = CapabilitiesSchema.safeParse(meta['io.modelcontextprotocol/clientCapabilities']);
  const knowsTasks = declared.success && Object.hasOwn(declared.data.extensions, TASKS_EXTENSION);
  return knowsTasks ? undefined : listen.data.id;
}
