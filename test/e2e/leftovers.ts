/** What of a stack is on the machine: found by its state folder and its cgroup parent, which no other stack has. */
import { lstat, readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { cgroupParent } from '../../scripts/development/host-agent-child.ts';

export interface Leftovers {
  processes: string[];
  mounts: string[];
  cgroups: string[];
}

export interface StackProcess {
  pid: number;
  command: string;
}

const CGROUP_ROOT = '/sys/fs/cgroup';

export async function leftoversOf(stateDir: string): Promise<Leftovers> {
  const processes = [...(await processesOf(stateDir)), ...(await processesWithOpenFilesIn(stateDir))];
  return {
    processes: processes.map(({ pid, command }) => `${pid} ${command.slice(0, 300)}`),
    mounts: (await readFile('/proc/self/mountinfo', 'utf8'))
      .split('\n')
      .filter((line) => line.includes(stateDir)),
    cgroups: await cgroupsOf(stateDir),
  };
}

/**
 * Every process that has the state folder in its command line or environment (the host agent, each runsc with its
 * sentry and stubs, which share the sentry's command line), this process left out.
 */
export async function processesOf(stateDir: string): Promise<StackProcess[]> {
  const found: StackProcess[] = [];
  for (const name of await readdir('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    const command = await readText(`/proc/${name}/cmdline`);
    const environment = await readText(`/proc/${name}/environ`);
    if (!command.includes(stateDir) && !environment.includes(stateDir)) continue;
    found.push({ pid, command: command.replaceAll('\0', ' ').trim() });
  }
  return found;
}

/** workerd and its parent do not name the folder, but they have its databases and logs open. */
async function processesWithOpenFilesIn(dir: string): Promise<StackProcess[]> {
  const found: StackProcess[] = [];
  for (const name of await readdir('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    const descriptors = await readdir(`/proc/${name}/fd`).catch(() => []);
    const files = await Promise.all(
      descriptors.map((descriptor) => readlink(`/proc/${name}/fd/${descriptor}`).catch(() => '')),
    );
    const file = files.find((path) => path.startsWith(`${dir}/`));
    if (file === undefined) continue;
    const [comm, status] = await Promise.all([
      readText(`/proc/${name}/comm`),
      readText(`/proc/${name}/status`),
    ]);
    const standing = status.split('\n').filter((line) => /^(State|PPid):/.test(line));
    found.push({ pid, command: `(${[comm.trim(), ...standing].join(', ')}) has ${file} open` });
  }
  return found;
}

/** Processes of one sandbox: its id is in the command line of everything that runsc runs for it. */
export async function processesOfSandbox(stateDir: string, sandboxId: string): Promise<StackProcess[]> {
  return (await processesOf(stateDir)).filter(({ command }) => command.includes(sandboxId));
}

/** Folders below the stack's own cgroup parent, in every hierarchy that there is; the parent itself counts too. */
export async function cgroupsOf(stateDir: string): Promise<string[]> {
  const parent = cgroupParent(stateDir);
  const found: string[] = [];
  const walk = async (dir: string, depth: number, inside: boolean): Promise<void> => {
    for (const entry of await readdir(dir, { withFileTypes: true }).catch(() => [])) {
      if (!entry.isDirectory()) continue;
      const path = join(dir, entry.name);
      const isOurs = inside || entry.name.includes(parent);
      if (isOurs) found.push(path);
      if (depth > 0) await walk(path, depth - 1, isOurs);
    }
  };
  await walk(CGROUP_ROOT, 6, false);
  return found;
}

/** The folder of a sandbox in the hierarchy that has `file`, for example `pids.max`. */
export async function cgroupFileOf(stateDir: string, sandboxId: string, file: string): Promise<string> {
  for (const dir of await cgroupsOf(stateDir)) {
    if (!dir.includes(sandboxId)) continue;
    const text = await readText(join(dir, file));
    if (text !== '') return text.trim();
  }
  throw new Error(`no cgroup of ${sandboxId} has ${file}`);
}

/** What the files below a folder take on the disk; 0 where there is no such folder. */
export async function bytesBelow(dir: string): Promise<number> {
  const entries = await readdir(dir, { withFileTypes: true, recursive: true }).catch(() => []);
  const blocks = await Promise.all(
    entries.map((entry) =>
      lstat(join(entry.parentPath, entry.name)).then(
        (file) => file.blocks,
        () => 0,
      ),
    ),
  );
  return blocks.reduce((sum, count) => sum + count, 0) * 512;
}

export async function residentBytes(pid: number): Promise<number> {
  const match = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'));
  if (match?.[1] === undefined) throw new Error(`process ${pid} has no resident size`);
  return Number(match[1]) * 1024;
}

/** Empty where the process or file is gone, or is a kernel thread's. */
async function readText(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '');
}
