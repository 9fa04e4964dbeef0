/** Taking a session back: which calls it follows by itself, and how it is asked for. */
import * as z from 'zod';
import { ExecutionIdSchema, SnapshotIdSchema } from './ids.ts';

/** `on_failure`: what a call that fails did to its session is taken back, by a snapshot that is made before it. */
export const RollbackPolicySchema = z.enum(['never', 'on_failure']);

/** Body of `POST /v1/sessions/{id}/rollback`. */
export const RollbackSchema = z
  .strictObject({
    snapshot_id: SnapshotIdSchema.optional().describe('A named snapshot of this session.'),
    execution_id: ExecutionIdSchema.optional().describe(
      'A call before which a snapshot was made: the session goes back to where it was before it.',
    ),
  })
  .refine(
    ({ snapshot_id, execution_id }) => (snapshot_id === undefined) !== (execution_id === undefined),
    'one of snapshot_id and execution_id',
  );
export type Rollback = z.infer<typeof RollbackSchema>;
