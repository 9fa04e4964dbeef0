/** Where the shell of a session stands: what its next call starts from, as far as that is shown. */
import * as z from 'zod';

export const MAX_WORKING_DIRECTORY_CHARACTERS = 4096;
/** As JSON: it travels in the header of a frame, beside a receipt. */
export const MAX_STANDING_ENVIRONMENT_BYTES = 16 * 1024;

export const ShellStandingSchema = z.object({
  working_directory: z.string().min(1).max(MAX_WORKING_DIRECTORY_CHARACTERS),
  /**
   * Exported variables that are not as the sandbox began with them; null where one is exported no more. Null as a whole
   * where that is more than is told.
   */
  environment: z
    .record(z.string(), z.string().nullable())
    .refine((environment) => JSON.stringify(environment).length <= MAX_STANDING_ENVIRONMENT_BYTES)
    .nullable(),
});
export type ShellStanding = z.infer<typeof ShellStandingSchema>;
