/** Runs one command to its end with bounded output. */
import { spawn } from 'node:child_process';

const MAX_OUTPUT_BYTES = 4 * 1024 * 1024;
const TAIL_LINES = 12;

export type RunOptions = {
  cwd?: string;
  environment?: NodeJS.ProcessEnv;
  /** Each line of standard output and error as it comes, for progress. */
  onLine?: (line: string) => void;
  signal?: AbortSignal;
};

export type RunResult = {
  exitCode: number | null;
  stdout: string;
  /** The last lines of both streams, for a failure message. */
  tail: string;
};

/** Never rejects for a failing command: a missing program is exit code 127, as in a shell. */
export function run(command: string, args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
  return new Promise((resolve) => {
    // Whatever ends this process ends the command too: nothing it started stays behind.
    const child = spawn('setpriv', ['--pdeathsig', 'TERM', '--', command, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: options.environment ?? process.env,
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    const kept: Buffer[] = [];
    let keptBytes = 0;
    const tail: string[] = [];
    const watch = lineSplitter((line) => {
      if (tail.push(line) > TAIL_LINES) tail.shift();
      options.onLine?.(line);
    });
    child.stdout.on('data', (chunk: Buffer) => {
      if (keptBytes < MAX_OUTPUT_BYTES) kept.push(chunk);
      keptBytes += chunk.length;
      watch(chunk);
    });
    child.stderr.on('data', watch);
    child.on('error', (error: Error) => {
      resolve({ exitCode: 127, stdout: '', tail: error.message });
    });
    child.on('close', (exitCode) => {
      resolve({ exitCode, stdout: Buffer.concat(kept).toString('utf8'), tail: tail.join('\n') });
    });
  });
}

function lineSplitter(onLine: (line: string) => void): (chunk: Buffer) => void {
  const maxLineLength = 8192;
  let rest = '';
  return (chunk) => {
    const lines = (rest + chunk.toString('utf8')).split(/[\r\n]+/);
    rest = (lines.pop() ?? '').slice(-maxLineLength);
    for (const line of lines) if (line.trim() !== '') onLine(line);
  };
}
