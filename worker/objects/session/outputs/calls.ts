/** The output of an execution for those who own its session. */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { StreamName } from '../../../../shared/execution.ts';
import type { Caller } from '../../caller.ts';
import { find } from '../executions/calls.ts';
import type { SessionRuntime } from '../runtime.ts';
import type { OutputAt, OutputExtent } from './port.ts';
import { outputAt, outputExtent } from './reading.ts';

export function extentFor(
  session: SessionRuntime,
  caller: Caller,
  { executionId, stream }: { executionId: string; stream: StreamName },
): Outcome<OutputExtent> {
  const found = find(session, caller, executionId);
  if (!found.ok) return found;
  const extent = outputExtent(session, found.value, stream);
  return found.value.expired && extent.totalBytes > 0
    ? failure('not_found', 'what the execution wrote is kept no longer')
    : success(extent);
}

export function pieceFor(
  session: SessionRuntime,
  caller: Caller,
  { executionId, ...place }: { executionId: string; stream: StreamName; at: number },
): Outcome<OutputAt> {
  const found = find(session, caller, executionId);
  if (!found.ok) return found;
  const piece = outputAt(session, found.value, place);
  return piece === undefined ? failure('not_found', 'that part of the output is gone') : success(piece);
}
