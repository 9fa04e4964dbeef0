/** Goes through the graph: each task as soon as what it waits for has ended. */
import * as z from 'zod';
import type { CallResult, TaskStatus, WorkflowTask } from '../../shared/workflow.ts';
import { MAX_FAN_OUT } from '../../shared/workflow.ts';
import { type RunEnd, RunEndSchema } from '../objects/workflow/port.ts';
import { type MadeCall, madeCall } from './awaited-call.ts';
import { refusedCall } from './call-result.ts';
import { holds } from './conditions.ts';
import { dependenciesOf } from './graph.ts';
import { fillIn, lookUp, type Surroundings } from './references.ts';
import type { RunContext } from './run-context.ts';
import type { TaskCalls } from './task-calls.ts';

interface TaskEnd {
  status: Exclude<TaskStatus, 'pending' | 'running'>;
  reason: string | null;
  /** The time of the workflow was over before it could end by itself. */
  isOutOfTime?: boolean;
  /** What other tasks may refer to. */
  result?: unknown;
}

const BeginSchema = z.object({ refusal: RunEndSchema.shape.status.nullable() });
/** Ends of a call after which an idempotent one is made again. */
const AGAIN: ReadonlySet<string> = new Set(['failed', 'timeout', 'oom', 'crashed', 'unknown', 'refused']);

export class GraphRun {
  readonly #context: RunContext;
  readonly #calls: TaskCalls;
  readonly #ends = new Map<string, Promise<TaskEnd>>();
  readonly #results = new Map<string, unknown>();

  constructor(context: RunContext, calls: TaskCalls) {
    this.#context = context;
    this.#calls = calls;
  }

  async run(): Promise<RunEnd> {
    const { tasks } = this.#context.plan.definition;
    const names = Object.keys(tasks);
    const ends = await Promise.all(names.map((name) => this.#endOf(name)));
    const isFailure = ({ status }: TaskEnd, index: number) =>
      status === 'failed' && tasks[names[index] ?? '']?.may_fail === false;
    // What was cancelled because of a failure says nothing of it.
    const failed = ends.findIndex(isFailure);
    const bad = failed < 0 ? ends.findIndex(({ status }) => status === 'cancelled') : failed;
    if (ends.some((end) => end.isOutOfTime === true)) {
      return { status: 'timeout', reason: TIMEOUT_REASON };
    }
    return bad < 0
      ? { status: 'succeeded', reason: null }
      : { status: 'failed', reason: `${names[bad]}: ${ends[bad]?.reason ?? null}` };
  }

  #endOf(name: string): Promise<TaskEnd> {
    const known = this.#ends.get(name);
    if (known !== undefined) return known;
    const ending = this.#task(name);
    this.#ends.set(name, ending);
    return ending;
  }

  async #task(name: string): Promise<TaskEnd> {
    const { definition } = this.#context.plan;
    const task = definition.tasks[name];
    if (task === undefined) return { status: 'skipped', reason: 'no such task' };
    const before = await Promise.all(dependenciesOf(task).map((dependency) => this.#endOf(dependency)));
    const end = await this.#after(name, task, before);
    if (end.result !== undefined) this.#results.set(name, end.result);
    const { steps, record } = this.#context;
    await steps.once(`end ${name}`, z.null(), () =>
      record((stub) => stub.taskEnded(name, end.status, end.reason)),
    );
    return end;
  }

  async #after(name: string, task: WorkflowTask, before: readonly TaskEnd[]): Promise<TaskEnd> {
    const { steps, record, plan } = this.#context;
    const allSucceeded = before.every(({ status }) => status === 'succeeded');
    const anyFailed = before.some(({ status }) => status === 'failed');
    const runs = { success: allSucceeded, failure: anyFailed, always: true }[task.run_on];
    if (!runs)
      return { status: 'skipped', reason: `its dependencies did not end so that it runs on ${task.run_on}` };
    const surroundings = { input: plan.definition.input, results: this.#results };
    if (task.when !== undefined && !holds(task.when, surroundings)) {
      return { status: 'skipped', reason: 'its condition does not hold' };
    }
    // Whether something else has failed by now is asked once: it would be answered otherwise when a run is taken up again.
    const { refusal } = await steps.once(`begin ${name}`, BeginSchema, () =>
      record((stub) => stub.taskBegins(name)),
    );
    if (refusal === 'timeout') return { status: 'cancelled', reason: TIMEOUT_REASON, isOutOfTime: true };
    if (refusal !== null) return { status: 'cancelled', reason: 'another task failed' };
    if (task.for_each !== undefined) return this.#forEach(name, task, surroundings);
    return endOfCall(await this.#attempts(name, task, { surroundings, item: null }));
  }

  async #forEach(name: string, task: WorkflowTask, surroundings: Surroundings): Promise<TaskEnd> {
    const list = task.for_each === undefined ? undefined : lookUp(task.for_each, surroundings);
    if (list?.ok !== true || !Array.isArray(list.value) || list.value.length > MAX_FAN_OUT) {
      return { status: 'failed', reason: `for_each: a list of at most ${MAX_FAN_OUT} items was expected` };
    }
    const items: readonly unknown[] = list.value;
    const results: MadeCall[] = [];
    let next = 0;
    const work = async (): Promise<void> => {
      while (next < items.length) {
        const item = next;
        next += 1;
        const around = { ...surroundings, item: { value: items[item] } };
        results[item] = await this.#attempts(name, task, { surroundings: around, item });
      }
    };
    await Promise.all(Array.from({ length: Math.min(task.max_parallel, items.length) }, work));
    const failed = results.find(({ status }) => status !== 'succeeded');
    const end = failed === undefined ? ({ status: 'succeeded', reason: null } as const) : endOfCall(failed);
    const isOutOfTime = results.some((result) => result.is_out_of_time);
    return { ...end, isOutOfTime, result: { status: end.status, items: results.map(shown) } };
  }

  /** Makes the call until it succeeds or may not be made again. */
  async #attempts(
    task: string,
    definition: WorkflowTask,
    { surroundings, item }: { surroundings: Surroundings; item: number | null },
  ): Promise<MadeCall> {
    const refused = (failure: Parameters<typeof refusedCall>[0]) =>
      madeCall(refusedCall(failure), { isShortened: false });
    const filled = fillIn(definition.arguments, surroundings);
    const args = filled.ok ? ArgumentsSchema.safeParse(filled.value) : undefined;
    if (!filled.ok) return refused(filled);
    if (args?.success !== true)
      return refused({ code: 'invalid_request', detail: 'arguments: an object was expected' });
    const { max_attempts = 1, delay_ms = 0, backoff = 'constant' } = definition.retries ?? {};
    for (let attempt = 1; ; attempt += 1) {
      const result = await this.#calls.make({ task, item, attempt }, definition, args.data);
      if (attempt >= max_attempts || result.is_out_of_time || !AGAIN.has(result.status)) return result;
      const delayMs = delay_ms * (backoff === 'exponential' ? 2 ** (attempt - 1) : 1);
      if (delayMs > 0) await this.#context.steps.sleep(`wait ${task} ${item ?? ''} ${attempt}`, delayMs);
    }
  }
}

const ArgumentsSchema = z.record(z.string(), z.unknown());
const TIMEOUT_REASON = 'the time of the workflow is over';

function endOfCall(call: MadeCall): TaskEnd {
  const { is_out_of_time: isOutOfTime } = call;
  const result = shown(call);
  if (result.status === 'succeeded') return { status: 'succeeded', reason: null, result };
  const why = result.error === null ? '' : `: ${result.error.name}: ${result.error.message}`;
  const where = result.execution_id ?? 'the call';
  const reason = `${where} ended as ${result.status}${why}`.slice(0, 1_000);
  return { status: 'failed', reason, isOutOfTime, result };
}

function shown(call: MadeCall): CallResult {
  const { is_out_of_time: _, ...result } = call;
  return result;
}
