/** What /proc says of the processes of this machine. */
import { readdir, readFile } from 'node:fs/promises';

export interface ListedProcess {
  pid: number;
  argv: string[];
}

/** Every process whose argument vector can be read; kernel threads and zombies have none and are left out. */
export async function listProcesses(): Promise<ListedProcess[]> {
  const names = await readdir('/proc');
  const processes: ListedProcess[] = [];
  for (const name of names) {
    if (!/^\d+$/.test(name)) continue;
    const commandLine = await readFile(`/proc/${name}/cmdline`, 'utf8').catch(() => '');
    if (commandLine === '') continue;
    processes.push({ pid: Number(name), argv: commandLine.split('\0').slice(0, -1) });
  }
  return processes;
}

/** SIGKILL; a process that is gone already is fine. */
export function killProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error: unknown) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}
