/** Runs a program to its end with bounded output and a deadline. */
import { collectBounded } from './bounded-output.ts';
import { type ProcessExit, type SpawnRequest, spawn } from './spawn.ts';

export interface RunLimits {
  timeoutMs: number;
  /** Of each stream. */
  maxOutputBytes: number;
  signal?: AbortSignal;
}

export interface CompletedProcess extends ProcessExit {
  stdout: string;
  stderr: string;
  truncated: boolean;
  /** Why we killed it, if we did. The first reason counts. */
  stopped: 'timeout' | 'aborted' | null;
}

/** Never rejects: a program that is missing, fails or is stopped is a result like any other. */
export async function run(request: SpawnRequest, limits: RunLimits): Promise<CompletedProcess> {
  const child = spawn(request);
  child.stdin.end();
  const stdout = collectBounded(child.stdout, limits.maxOutputBytes);
  const stderr = collectBounded(child.stderr, limits.maxOutputBytes);
  let stopped: CompletedProcess['stopped'] = null;
  const stop = (reason: 'timeout' | 'aborted'): void => {
    stopped ??= reason;
    child.kill('SIGKILL');
  };
  const onAbort = (): void => stop('aborted');
  const timer = setTimeout(() => stop('timeout'), limits.timeoutMs);
  limits.signal?.addEventListener('abort', onAbort, { once: true });
  if (limits.signal?.aborted === true) onAbort();

  const exit = await child.exited;
  clearTimeout(timer);
  limits.signal?.removeEventListener('abort', onAbort);
  await settleStreams(exit, [child.stdout, child.stderr], [stdout.ended, stderr.ended]);
  return {
    ...exit,
    stdout: stdout.text(),
    stderr: stderr.text(),
    truncated: stdout.truncated || stderr.truncated,
    stopped,
  };
}

/** A grandchild that keeps the pipe open must not keep us waiting. */
const DRAIN_MS = 500;

async function settleStreams(
  exit: ProcessExit,
  streams: { destroy(): unknown }[],
  ended: Promise<void>[],
): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const patience = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, exit.startFailure === null ? DRAIN_MS : 0);
  });
  await Promise.race([Promise.all(ended), patience]);
  clearTimeout(timer);
  for (const stream of streams) stream.destroy();
}
