/** The only place that starts processes: an argument vector, an environment of its own, never a shell. */
import { spawn as spawnChild } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';

export interface SpawnRequest {
  file: string;
  argv: readonly string[];
  /** The whole environment: nothing is inherited. */
  environment: Readonly<Record<string, string>>;
}

export interface ProcessExit {
  exitCode: number | null;
  signal: NodeJS.Signals | null;
  /** Set when the program could not be started; the other two are null then. */
  startFailure: string | null;
}

export interface SpawnedProcess {
  /** Undefined when it could not be started. */
  pid: number | undefined;
  stdin: Writable;
  stdout: Readable;
  stderr: Readable;
  /** Never rejects. Resolves at the end of the process; its streams may still hold bytes to read. */
  exited: Promise<ProcessExit>;
  /** No effect once the process has ended. */
  kill(signal: NodeJS.Signals): void;
}

/** The process leads a session of its own, so a terminal's Ctrl-C reaches it through us only. */
export function spawn(request: SpawnRequest): SpawnedProcess {
  const child = spawnChild(request.file, request.argv, {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...request.environment },
    detached: true,
    shell: false,
  });
  const exited = new Promise<ProcessExit>((resolve) => {
    child.once('error', (error) => {
      if (child.pid === undefined) resolve({ exitCode: null, signal: null, startFailure: error.message });
    });
    child.once('exit', (exitCode, signal) => resolve({ exitCode, signal, startFailure: null }));
  });
  // A write to a process that has ended fails with EPIPE; whoever writes learns it from the write itself.
  child.stdin.on('error', () => undefined);
  return {
    pid: child.pid,
    stdin: child.stdin,
    stdout: child.stdout,
    stderr: child.stderr,
    exited,
    kill: (signal) => {
      child.kill(signal);
    },
  };
}
