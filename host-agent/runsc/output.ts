/** The JSON that runsc prints. */
import * as z from 'zod';

const ContainerStatusSchema = z.enum(['creating', 'created', 'running', 'stopped', 'paused']);

export const ContainerSchema = z.object({
  id: z.string(),
  status: ContainerStatusSchema,
  /** Process of the sentry on the host; 0 when it has ended. */
  pid: z.int().min(0).default(0),
  bundle: z.string(),
});
export type Container = z.infer<typeof ContainerSchema>;

/** An empty list is printed as `null`. */
export const ContainerListSchema = z
  .array(ContainerSchema)
  .nullable()
  .transform((list) => list ?? []);
