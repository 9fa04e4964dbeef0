/** One run of a call at the edge: written in its session before it is made, and when it has ended. */
import { type Outcome, success } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { newId } from '../../shared/ids.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import { UNSAFE } from '../objects/object-calls.ts';
import type { OnEdgeProgress } from '../tools/edge-execution.ts';
import type { EdgePerformance } from '../tools/performance.ts';
import type { OwnSession } from './own-session.ts';

export interface EdgeRun {
  /** Resolves when it is written and so will be made, or was made before. */
  begin: () => Promise<Outcome<null>>;
  /** As it stands then: one that was made before has ended. */
  begun: () => Promise<Outcome<Execution>>;
  end: () => Promise<Outcome<Execution>>;
  stop: () => void;
}

export interface EdgeRunInput {
  performance: EdgePerformance;
  /** The result as the tool promises it, or said to be otherwise. */
  finish: (execution: Execution) => Execution;
  idempotency: Idempotency | null;
  onProgress?: OnEdgeProgress | undefined;
}

export function edgeRun(
  session: OwnSession,
  { performance, finish, idempotency, onProgress }: EdgeRunInput,
): EdgeRun {
  const controller = new AbortController();
  const ids = { sessionId: session.sessionId, executionId: newId('exe') };
  let call: ReturnType<EdgePerformance['begun']> | undefined;
  let begun: Promise<Outcome<Execution | null>> | undefined;
  let ended: Promise<Outcome<Execution>> | undefined;
  const begin = () => {
    call ??= performance.begun(ids);
    begun ??= call.then((one) => {
      const whole = { ...one, idempotency, timeoutMs: performance.timeoutMs };
      return session.call((stub) => stub.beginEdgeCall(session.caller, whole), UNSAFE);
    });
    return begun;
  };
  const run = async (): Promise<Outcome<Execution>> => {
    const first = await begin();
    if (!first.ok) return first;
    if (first.value !== null) return success(first.value);
    const execution = finish(await performance.run(ids, controller.signal, onProgress));
    // The answer is given also where it could not be kept: then the call reads as unknown later, and has no receipt.
    const kept = await session
      .call((stub) => stub.endEdgeCall(session.caller, execution), UNSAFE)
      .catch(() => undefined);
    return success({ ...execution, receipt: kept?.ok === true ? kept.value : null });
  };
  return {
    begin: async () => {
      const first = await begin();
      return first.ok ? success(null) : first;
    },
    begun: async () => {
      const first = await begin();
      if (!first.ok) return first;
      return success(first.value ?? (await (call ?? performance.begun(ids))).execution);
    },
    end: () => {
      ended ??= run();
      return ended;
    },
    stop: () => controller.abort(),
  };
}
