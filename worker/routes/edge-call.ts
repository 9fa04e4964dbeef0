/** One run of a call at the edge: written in its session before it is made, and when it has ended. */
import { type Outcome, success } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { newId } from '../../shared/ids.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import type { EdgePerformance } from '../tools/performance.ts';
import { UNSAFE } from './object-calls.ts';
import type { OwnSession } from './own-session.ts';

export interface EdgeRun {
  /** Resolves when it is written and so will be made, or was made before. */
  begin: () => Promise<Outcome<null>>;
  end: () => Promise<Outcome<Execution>>;
  stop: () => void;
}

export function edgeRun(
  session: OwnSession,
  { performance, idempotency }: { performance: EdgePerformance; idempotency: Idempotency | null },
): EdgeRun {
  const controller = new AbortController();
  const ids = { sessionId: session.sessionId, executionId: newId('exe') };
  let begun: Promise<Outcome<Execution | null>> | undefined;
  let ended: Promise<Outcome<Execution>> | undefined;
  const begin = () => {
    begun ??= session.call((stub) => {
      const execution = performance.begun(ids);
      return stub.beginEdgeCall(session.caller, { execution, idempotency, timeoutMs: performance.timeoutMs });
    }, UNSAFE);
    return begun;
  };
  const run = async (): Promise<Outcome<Execution>> => {
    const first = await begin();
    if (!first.ok) return first;
    if (first.value !== null) return success(first.value);
    const execution = await performance.run(ids, controller.signal);
    // The answer does not wait on whether it could be kept: without it the call reads as unknown later.
    await session.call((stub) => stub.endEdgeCall(session.caller, execution), UNSAFE).catch(() => undefined);
    return success(execution);
  };
  return {
    begin: async () => {
      const first = await begin();
      return first.ok ? success(null) : first;
    },
    end: () => {
      ended ??= run();
      return ended;
    },
    stop: () => controller.abort(),
  };
}
