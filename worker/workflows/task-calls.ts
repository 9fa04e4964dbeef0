/** One call of a task: accepted once by its key, awaited, and told as much as later tasks may refer to. */
import * as z from 'zod';
import { sha256Hex } from '../../shared/digest.ts';
import { ERRORS } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { DEFAULT_TIMEOUT_MS } from '../../shared/limits.ts';
import type { TaskProgram, WorkflowTask } from '../../shared/workflow.ts';
import { askApproval } from '../calls/approved-call.ts';
import { acceptCall, attendedCall, awaitCall } from '../calls/attended-call.ts';
import { beginProgram } from '../calls/begin-program.ts';
import { sessionOf } from '../calls/own-session.ts';
import { admitOwner, ownersExchange } from '../engine/owner.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { resolveCall } from '../tools/resolve-call.ts';
import {
  type Attempt,
  type AwaitedCall,
  AwaitedSchema,
  type MadeCall,
  MadeCallSchema,
  madeCall,
  outOfTime,
} from './awaited-call.ts';
import { callResult, refusedCall } from './call-result.ts';
import { LOOK_STEP_MS, Looks } from './looks.ts';
import type { RunContext } from './run-context.ts';
import type { RunSessions } from './run-sessions.ts';

/** Beside its own time: the queue of the session, and a host that has to come back. */
const STEP_MARGIN_MS = 3_600_000;

const BegunSchema = z.union([AwaitedSchema, MadeCallSchema]);

export class TaskCalls {
  readonly #context: RunContext;
  readonly #sessions: RunSessions;
  readonly #looks: Looks;

  constructor(context: RunContext, sessions: RunSessions) {
    this.#context = context;
    this.#sessions = sessions;
    this.#looks = new Looks(context);
  }

  async make(at: Attempt, task: WorkflowTask, args: Record<string, unknown>): Promise<MadeCall> {
    const { steps } = this.#context;
    const sessionId = await this.#sessions.idOf(task.session);
    const name = `call ${at.task}${at.item === null ? '' : `[${at.item}]`} ${at.attempt}`;
    const begun = await steps.once(
      name,
      BegunSchema,
      () => orRefused(() => this.#begin(at, { ...task, arguments: args }, sessionId)),
      (task.timeout_ms ?? DEFAULT_TIMEOUT_MS) + STEP_MARGIN_MS,
    );
    if (!('awaited' in begun)) return begun;
    for (let look = 1; ; look += 1) {
      const seen = await steps.once(
        `${name} look ${look}`,
        MadeCallSchema.nullable(),
        () => orRefused(() => this.#looks.at(at, begun, sessionId)),
        LOOK_STEP_MS + begun.timeout_ms,
      );
      if (seen !== null) return seen;
    }
  }

  async #begin(at: Attempt, task: WorkflowTask, sessionId: string): Promise<MadeCall | AwaitedCall> {
    const { plan, env } = this.#context;
    const leftMs = plan.endsBy - Date.now();
    if (leftMs <= 0) return outOfTime();
    await admitOwner(env, plan.owner);
    const key = await sha256Hex(JSON.stringify(['workflow', plan.workflowId, at.task, at.item, at.attempt]));
    const about = { sessionId, leftMs, idempotency: { key, fingerprint: key } };
    const { program, tool_name } = task;
    if (program !== undefined)
      return this.#beginProgram(at, { ...program, arguments: task.arguments }, about);
    return this.#call(at, { ...task, tool_name: tool_name ?? '' }, about);
  }

  async #beginProgram(
    at: Attempt,
    program: TaskProgram & { arguments: Record<string, unknown> },
    { sessionId, leftMs, idempotency }: CallFrame,
  ): Promise<AwaitedCall> {
    const exchange = ownersExchange(this.#context, this.#context.plan.owner);
    const timeoutMs = Math.min(program.limits.timeout_ms, leftMs);
    const request = { ...program, limits: { ...program.limits, timeout_ms: timeoutMs } };
    const session = sessionOf(exchange, sessionId);
    const begun = unwrap(await beginProgram(exchange, session, { request, idempotency }));
    await this.#begun(at, begun.execution);
    const is_shortened = timeoutMs < program.limits.timeout_ms;
    return { awaited: 'program', execution_id: begun.program_id, timeout_ms: timeoutMs, is_shortened };
  }

  async #call(
    at: Attempt,
    { tool_name, arguments: args, timeout_ms }: WorkflowTask & { tool_name: string },
    { sessionId, leftMs, idempotency }: CallFrame,
  ): Promise<MadeCall | AwaitedCall> {
    const exchange = ownersExchange(this.#context, this.#context.plan.owner);
    const call = { tool_name, arguments: args, ...(timeout_ms === undefined ? {} : { timeout_ms }) };
    const place = { root: `tasks.${at.task}.`, approval: 'asked' as const };
    const resolved = await resolveCall(exchange, call, place);
    const session = sessionOf(exchange, sessionId);
    if (resolved.toApprove !== undefined) {
      const asked = { call: resolved.toApprove, idempotency, claims: false };
      const waiting = unwrap(await askApproval(exchange, session, asked));
      await this.#begun(at, waiting);
      const { timeoutMs } = resolved.toApprove;
      const { execution_id } = waiting;
      return { awaited: 'approval', execution_id, timeout_ms: timeoutMs, is_shortened: false };
    }
    const ownMs = resolved.call.timeout_ms ?? DEFAULT_TIMEOUT_MS;
    const timeoutMs = Math.min(ownMs, leftMs);
    const body = { ...resolved.call, timeout_ms: timeoutMs };
    const attended = attendedCall(exchange, session, { body, idempotency, resolved });
    const accepted = unwrap(await acceptCall(attended));
    if (accepted !== null) await this.#begun(at, accepted);
    const ended = unwrap(await awaitCall(attended));
    await this.#begun(at, ended);
    return madeCall(callResult(ended), { isShortened: leftMs < ownMs });
  }

  async #begun(at: Attempt, { execution_id, session_id, status }: Execution): Promise<void> {
    await this.#context.record((stub) => stub.callBegun({ ...at, execution_id, session_id, status }));
  }
}

interface CallFrame {
  sessionId: string;
  /** Until the time of the workflow is over. */
  leftMs: number;
  idempotency: Idempotency;
}

/** What may be otherwise in a moment is left to the engine, which makes the step again. */
async function orRefused<T>(act: () => Promise<T>): Promise<T | MadeCall> {
  try {
    return await act();
  } catch (error: unknown) {
    if (!(error instanceof Refusal) || ERRORS[error.failure.code].retryable) throw error;
    return madeCall(refusedCall(error.failure), { isShortened: false });
  }
}
