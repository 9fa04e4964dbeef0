/**
 * Looks at sandboxes from outside: which executions run, how long a start takes, and which execution did not end though
 * its own deadline is long past. Whatever went wrong inside, such an execution ends, and its sandbox with it.
 */

import type { Log } from '../logging/log.ts';
import { lostOutcome } from '../sandbox/lost-outcome.ts';
import type { RunningExecution, Sandbox, Sandboxes, ToolOutcome } from '../sandbox/port.ts';

/** The sandbox ends an execution that does not obey 3 s after its deadline; this is for when that failed. */
const OVERDUE_GRACE_MS = 20_000;
/** For a sandbox that was destroyed to report the end of its executions. */
const DESTROY_GRACE_MS = 10_000;

export interface WatchedSandboxes extends Sandboxes {
  /** Executions that run now, in all sandboxes. */
  readonly executions: number;
}

export interface WatchOptions {
  log: Log;
  overdueGraceMs?: number;
  destroyGraceMs?: number;
}

export function watchSandboxes(sandboxes: Sandboxes, options: WatchOptions): WatchedSandboxes {
  const running = new Set<string>();
  const restore = sandboxes.restore?.bind(sandboxes);
  const takeHeld = sandboxes.takeHeld?.bind(sandboxes);
  return overlay<Sandboxes, WatchedSandboxes>(sandboxes, {
    get executions() {
      return running.size;
    },
    async start(config: Parameters<Sandboxes['start']>[0]) {
      const beganMs = performance.now();
      const started = await sandboxes.start(config);
      if (!started.ok) return started;
      const durationMs = Math.round(performance.now() - beganMs);
      options.log.info({
        event: 'sandbox_started',
        sandbox_id: config.sandboxId,
        duration_ms: durationMs,
      });
      return { ok: true, value: watchSandbox(started.value, running, options) };
    },
    ...(takeHeld === undefined
      ? {}
      : {
          takeHeld(session: Parameters<typeof takeHeld>[0]) {
            const held = takeHeld(session);
            if (held === undefined) return undefined;
            return { ...held, sandbox: watchSandbox(held.sandbox, running, options) };
          },
        }),
    ...(restore === undefined ? {} : { restore: watchRestore(restore, running, options) }),
  });
}

/** The call of a checkpoint has its own deadline, as every other, and this one beside it. */
function watchRestore(
  restore: NonNullable<Sandboxes['restore']>,
  running: Set<string>,
  options: WatchOptions,
): NonNullable<Sandboxes['restore']> {
  return async (config, from) => {
    const beganMs = performance.now();
    const restored = await restore(config, from);
    if (!restored.ok) return restored;
    const { sandboxId: sandbox_id } = config;
    const duration_ms = Math.round(performance.now() - beganMs);
    options.log.info({ event: 'sandbox_restored', sandbox_id, duration_ms });
    const { sandbox, calls, goOn } = restored.value;
    return {
      ok: true,
      value: {
        goOn,
        sandbox: watchSandbox(sandbox, running, options),
        calls: calls.map(({ tool, execution }) => {
          const call = from.state.calls.find((candidate) => candidate.tool === tool);
          const watched = {
            sandbox,
            executionId: `${tool} of ${sandbox_id}`,
            timeoutMs: call?.timeout_left_ms ?? 0,
          };
          return { tool, execution: watchExecution(execution, watched, running, options) };
        }),
      },
    };
  };
}

function watchExecution(
  execution: RunningExecution,
  watched: { sandbox: Sandbox; executionId: string; timeoutMs: number },
  running: Set<string>,
  options: WatchOptions,
): RunningExecution {
  const { executionId } = watched;
  running.add(executionId);
  const finished = endAtLast(execution, watched, options).finally(() => running.delete(executionId));
  return overlay<RunningExecution, RunningExecution>(execution, { finished });
}

function watchSandbox(sandbox: Sandbox, running: Set<string>, options: WatchOptions): Sandbox {
  return overlay<Sandbox, Sandbox>(sandbox, {
    execute(...args: Parameters<Sandbox['execute']>): RunningExecution {
      const [{ executionId, timeoutMs }] = args;
      return watchExecution(sandbox.execute(...args), { sandbox, executionId, timeoutMs }, running, options);
    },
  });
}

async function endAtLast(
  execution: RunningExecution,
  watched: { sandbox: Sandbox; executionId: string; timeoutMs: number },
  { log, overdueGraceMs = OVERDUE_GRACE_MS, destroyGraceMs = DESTROY_GRACE_MS }: WatchOptions,
): Promise<ToolOutcome> {
  const { sandbox, executionId, timeoutMs } = watched;
  const { finished } = execution;
  let countedMs = 0;
  for (let boundMs = timeoutMs + overdueGraceMs; boundMs > 0; ) {
    const inTime = await within(finished, boundMs);
    if (inTime !== undefined) return inTime;
    // While its sandbox was paused its own deadline did not come nearer.
    const { pausedMs } = execution;
    boundMs = pausedMs - countedMs;
    countedMs = pausedMs;
  }
  log.error({ event: 'execution_overdue', execution_id: executionId, sandbox_id: sandbox.id });
  void sandbox.destroy().catch(() => undefined);
  return (await within(finished, destroyGraceMs)) ?? lostOutcome('timeout');
}

/** Undefined when it took longer. */
async function within<Value>(promise: Promise<Value>, boundMs: number): Promise<Value | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const bound = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), boundMs);
    timer.unref();
  });
  return Promise.race([promise, bound]).finally(() => clearTimeout(timer));
}

/** The object itself with some members in front: methods that the port gains later pass through by themselves. */
function overlay<Base extends object, Whole extends Base>(
  base: Base,
  front: Omit<Whole, keyof Base> & Partial<Base>,
): Whole {
  return new Proxy(base, {
    get(target, key) {
      if (Reflect.has(front, key)) return Reflect.get(front, key);
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  }) as Whole;
}
