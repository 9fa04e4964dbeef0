/** The only place that starts processes: an argument vector, an environment of its own, never a shell. */
import { type ChildProcess, spawn as spawnChild } from 'node:child_process';
import { Duplex, PassThrough, Readable, type Writable } from 'node:stream';

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

export type StandardStreams = Pick<SpawnedProcess, 'stdin' | 'stdout' | 'stderr'>;

/** The process leads a session of its own, so a terminal's Ctrl-C reaches it through us only. */
export function spawn(request: SpawnRequest): SpawnedProcess {
  const child = spawnChild(request.file, request.argv, {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...request.environment },
    detached: true,
    shell: false,
  });
  return processOf(child, streamsFrom(child, 0));
}

/** Sockets take the places of the standard streams, and then the program that of the shell. */
const ONTO_STANDARD_STREAMS = 'exec "$0" "$@" <&3 >&4 2>&5 3>&- 4>&- 5>&-';

/**
 * For a program that starts another one on its own standard streams and ends. The exit is that of the program where it
 * failed; else it has neither code nor signal, and comes when nobody holds the streams any more. Node closes the input of a
 * child that has ended, so the streams are three further descriptors, and a shell puts them in place: its script is
 * constant, and the argument vector reaches it as such. Both outputs have to be read from the beginning: Node lets go what nobody
 * has read of them when its child ends.
 */
export function spawnStarter(request: SpawnRequest): SpawnedProcess {
  const child = spawnChild('/bin/sh', ['-c', ONTO_STANDARD_STREAMS, request.file, ...request.argv], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
    env: { ...request.environment },
    detached: true,
    shell: false,
  });
  const { stdin, stdout, stderr } = streamsFrom(child, 3);
  // What comes back on the input is nothing to us, but its end is.
  stdin.resume();
  return startedBy(processOf(child, { stdin, stdout, stderr }));
}

/** As what `spawnStarter` gives, of streams that lead to what a former process of ours started. */
export function joinStarted(streams: StandardStreams): SpawnedProcess {
  // Whoever reads or writes learns from that of a stream that breaks.
  for (const stream of [streams.stdin, streams.stdout, streams.stderr]) stream.on('error', () => undefined);
  return startedBy({
    pid: undefined,
    ...streams,
    exited: Promise.resolve({ exitCode: null, signal: null, startFailure: null }),
    kill: () => undefined,
  });
}

/**
 * The program has these streams of ours too, from its descriptor 3 on; both can use them from then on. Throws where one of
 * them has no descriptor.
 */
export function spawnSharing(
  request: SpawnRequest,
  streams: readonly (Readable | Writable)[],
): SpawnedProcess {
  // Node leaves it to the child to read them.
  const read = streams.flatMap((stream) =>
    stream instanceof Readable && !stream.isPaused() ? [stream] : [],
  );
  const child = spawnChild(request.file, request.argv, {
    stdio: ['pipe', 'pipe', 'pipe', ...streams],
    env: { ...request.environment },
    detached: true,
    shell: false,
  });
  for (const stream of read) stream.resume();
  return processOf(child, streamsFrom(child, 0));
}

function startedBy({ exited, ...started }: SpawnedProcess): SpawnedProcess {
  const letGo = Promise.all([closed(started.stdout), closed(started.stderr)]);
  return {
    ...started,
    exited: exited.then(async (exit) => {
      if (exit.startFailure !== null) return exit;
      await letGo;
      return exit.exitCode === 0 ? { ...exit, exitCode: null } : exit;
    }),
  };
}

/** Out of descriptors Node makes no streams, and tells of it as of any program that cannot be started. */
function streamsFrom({ stdio }: { stdio: readonly unknown[] | undefined }, first: number) {
  const streams = stdio?.slice(first) ?? Array.from({ length: 3 }, () => new PassThrough().end());
  const [stdin, stdout, stderr] = streams.filter((stream) => stream instanceof Duplex);
  if (stdin === undefined || stdout === undefined || stderr === undefined) {
    throw new Error('a child with three streams was expected');
  }
  return { stdin, stdout, stderr };
}

function closed(stream: Readable): Promise<void> {
  return new Promise((resolve) => {
    stream.once('close', () => resolve());
  });
}

function processOf(child: ChildProcess, streams: StandardStreams): SpawnedProcess {
  const { stdin, stdout, stderr } = streams;
  const exited = new Promise<ProcessExit>((resolve) => {
    child.once('error', (error) => {
      if (child.pid === undefined) resolve({ exitCode: null, signal: null, startFailure: error.message });
    });
    child.once('exit', (exitCode, signal) => resolve({ exitCode, signal, startFailure: null }));
  });
  // A write to a process that has ended fails with EPIPE; whoever writes learns it from the write itself.
  stdin.on('error', () => undefined);
  return {
    pid: child.pid,
    stdin,
    stdout,
    stderr,
    exited,
    kill: (signal) => {
      child.kill(signal);
    },
  };
}
