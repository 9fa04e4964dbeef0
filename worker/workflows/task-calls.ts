/** One call of a task: accepted once by its key, awaited, and told as much as later tasks may refer to. */
import { sha256Hex } from '../../shared/digest.ts';
import { ERRORS } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { DEFAULT_TIMEOUT_MS } from '../../shared/limits.ts';
import { type CallResult, CallResultSchema, type WorkflowTask } from '../../shared/workflow.ts';
import { admitOwner, ownersExchange } from '../engine/owner.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { acceptCall, attendedCall, awaitCall } from '../routes/attended-call.ts';
import { sessionOf } from '../routes/own-session.ts';
import { resolveCall } from '../tools/resolve-call.ts';
import { callResult, refusedCall } from './call-result.ts';
import type { RunContext } from './run-context.ts';
import type { RunSessions } from './run-sessions.ts';

/** Beside its own time: the queue of the session, and a host that has to come back. */
const STEP_MARGIN_MS = 3_600_000;

export interface Attempt {
  task: string;
  item: number | null;
  attempt: number;
}

export class TaskCalls {
  readonly #context: RunContext;
  readonly #sessions: RunSessions;

  constructor(context: RunContext, sessions: RunSessions) {
    this.#context = context;
    this.#sessions = sessions;
  }

  async make(at: Attempt, task: WorkflowTask, args: Record<string, unknown>): Promise<CallResult> {
    const sessionId = await this.#sessions.idOf(task.session);
    const name = `call ${at.task}${at.item === null ? '' : `[${at.item}]`} ${at.attempt}`;
    return this.#context.steps.once(
      name,
      CallResultSchema,
      async () => {
        try {
          return await this.#call(at, { ...task, arguments: args }, sessionId);
        } catch (error: unknown) {
          // What may be otherwise in a moment is left to the engine, which makes the step again.
          if (!(error instanceof Refusal) || ERRORS[error.failure.code].retryable) throw error;
          return refusedCall(error.failure);
        }
      },
      (task.timeout_ms ?? DEFAULT_TIMEOUT_MS) + STEP_MARGIN_MS,
    );
  }

  async #call(at: Attempt, task: WorkflowTask, sessionId: string): Promise<CallResult> {
    const { plan, env, record } = this.#context;
    const leftMs = plan.endsBy - Date.now();
    if (leftMs <= 0) return refusedCall({ code: 'overloaded', detail: 'the time of the workflow is over' });
    await admitOwner(env, plan.owner);
    const exchange = ownersExchange(this.#context, plan.owner);
    const resolved = await resolveCall(
      exchange,
      {
        tool_name: task.tool_name,
        arguments: task.arguments,
        ...(task.timeout_ms === undefined ? {} : { timeout_ms: task.timeout_ms }),
      },
      { root: `tasks.${at.task}.` },
    );
    const timeoutMs = Math.min(resolved.call.timeout_ms ?? DEFAULT_TIMEOUT_MS, leftMs);
    const key = await sha256Hex(JSON.stringify(['workflow', plan.workflowId, at.task, at.item, at.attempt]));
    const call = attendedCall(exchange, sessionOf(exchange, sessionId), {
      body: { ...resolved.call, timeout_ms: timeoutMs },
      idempotency: { key, fingerprint: key },
      resolved,
    });
    const accepted = unwrap(await acceptCall(call));
    if (accepted !== null) await record((stub) => stub.callBegun({ ...at, ...idsOf(accepted) }));
    const ended = unwrap(await awaitCall(call));
    await record((stub) => stub.callBegun({ ...at, ...idsOf(ended) }));
    return callResult(ended);
  }
}

function idsOf({ execution_id, session_id, status }: Execution) {
  return { execution_id, session_id, status };
}
