/** How long a tenant's operator wants kept what is over. */
import * as z from 'zod';

const days = (about: string) =>
  z.int().min(1).max(3_650).nullable().default(null).describe(`${about}; null: no end of its own.`);

export const RetentionSchema = z.strictObject({
  artifacts_days: days('Days that an artifact is kept'),
  executions_days: days(
    'Days that an execution stays in the history of its session after its end; its receipt stays as long as the session',
  ),
  outputs_days: days(
    'Days that what an execution wrote and gave is kept after its end; how it ended, how much it wrote, and its receipt stay',
  ),
});
export type Retention = z.infer<typeof RetentionSchema>;
export const KEPT_FOREVER: Retention = RetentionSchema.parse({});
