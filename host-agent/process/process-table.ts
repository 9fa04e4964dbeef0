/** What /proc says of the processes of this machine. */
import { readFile } from 'node:fs';
import { readdir } from 'node:fs/promises';

/** Each takes a descriptor. */
const READ_AT_ONCE = 8;
/** A process that has ended, or that is not to be looked at. */
const WITHOUT_ARGUMENTS: ReadonlySet<string | undefined> = new Set(['ENOENT', 'ESRCH', 'EACCES', 'EPERM']);

export interface ListedProcess {
  pid: number;
  argv: string[];
}

/** Every process whose argument vector can be read; kernel threads and zombies have none and are left out. */
export async function listProcesses(): Promise<ListedProcess[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const processes: ListedProcess[] = [];
  for (let at = 0; at < pids.length; at += READ_AT_ONCE) {
    const some = pids.slice(at, at + READ_AT_ONCE);
    const vectors = await Promise.all(some.map(argvOf));
    for (const [index, pid] of some.entries()) {
      const argv = vectors[index] ?? [];
      if (argv.length > 0) processes.push({ pid, argv });
    }
  }
  return processes;
}

/** Empty where it is gone, or has none. */
export function argvOf(pid: number): Promise<string[]> {
  return new Promise((resolve, reject) => {
    // A third of what the promises of `fs` take. Not at once: the kernel may let who reads this wait for the process.
    readFile(`/proc/${pid}/cmdline`, 'utf8', (error, commandLine) => {
      if (error === null) resolve(commandLine.split('\0').slice(0, -1));
      else if (WITHOUT_ARGUMENTS.has(error.code)) resolve([]);
      else reject(error);
    });
  });
}

/** SIGKILL; a process that is gone already is fine. */
export function killProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error: unknown) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}
