/** How a stream of events reads, for the documentation. */
import * as z from 'zod';

export const StreamTextSchema = z
  .string()
  .describe(
    'Server-sent events `started`, `stdout`, `stderr`, `gap`, `result` and `end`, each with an `id`; comments keep it alive.',
  );
