/** Has the layers of an image unpacked by a process that can write nowhere else, and makes what it wrote root's. */
import { chmod, chown, lchown, lstat, mkdir, opendir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { collectBounded } from '../../process/bounded-output.ts';
import { spawn } from '../../process/spawn.ts';
import { ImageRefusal } from '../refusal.ts';
import { type UnpackJob, type UnpackReport, UnpackReportSchema } from './job.ts';

/** Below every user of a sandbox, and of no account: files that are not root's yet belong to nobody who runs. */
const UNPACKING_USER = 99_999;
const MAX_REPORT_BYTES = 64 * 1024;
const UNPACK_TIMEOUT_MS = 30 * 60_000;
const PROGRAM = fileURLToPath(new URL('./main.ts', import.meta.url));
const NO_NETWORK = ['--net', '--ipc', '--uts', '--'];
/** Of root's powers only to read the layers and to stop being root. */
const FEW_POWERS = [
  'setpriv',
  '--no-new-privs',
  '--inh-caps=-all',
  '--bounding-set=-all,+dac_read_search,+setuid,+setgid',
  '--',
];
const SET_ID_BITS = 0o6000;

export type Unpacked = Omit<Extract<UnpackReport, { ok: true }>, 'ok'>;

/** `rootfsPath` is made, and is whole or must be thrown away. */
export async function unpackLayers(job: Omit<UnpackJob, 'userId'>): Promise<Unpacked> {
  await mkdir(job.rootfsPath, { mode: 0o700 });
  await chown(job.rootfsPath, UNPACKING_USER, UNPACKING_USER);
  const report = await runUnpacker({ ...job, userId: UNPACKING_USER });
  if (!report.ok) throw new ImageRefusal(report.detail);
  await giveToRoot(job.rootfsPath);
  await chmod(job.rootfsPath, 0o755);
  const { ok: _, ...unpacked } = report;
  return unpacked;
}

async function runUnpacker(job: UnpackJob): Promise<UnpackReport> {
  const child = spawn({
    file: 'unshare',
    argv: [...NO_NETWORK, ...FEW_POWERS, process.execPath, '--disable-warning=ExperimentalWarning', PROGRAM],
    environment: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
  });
  const stdout = collectBounded(child.stdout, MAX_REPORT_BYTES);
  const stderr = collectBounded(child.stderr, MAX_REPORT_BYTES);
  child.stdin.write(`${JSON.stringify(job)}\n`);
  const timer = setTimeout(() => child.kill('SIGKILL'), UNPACK_TIMEOUT_MS);
  const exit = await child.exited;
  clearTimeout(timer);
  await Promise.all([stdout.ended, stderr.ended]);
  const report = UnpackReportSchema.safeParse(parseJson(stdout.text()));
  if (report.success) return report.data;
  const how = exit.startFailure ?? exit.signal ?? `exit code ${exit.exitCode}`;
  throw new ImageRefusal(`unpacking failed (${how}): ${stderr.text().trim().split('\n').at(-1) ?? ''}`);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Looks at each thing once more from outside: nothing but files, folders and links, and none that changes its user. */
async function giveToRoot(dir: string): Promise<void> {
  for await (const entry of await opendir(dir)) {
    const path = join(dir, entry.name);
    if (!entry.isFile() && !entry.isDirectory() && !entry.isSymbolicLink()) {
      throw new ImageRefusal('the unpacked image holds something that is no file, folder or link');
    }
    const { mode } = await lstat(path);
    if (!entry.isSymbolicLink() && (mode & SET_ID_BITS) !== 0) {
      throw new ImageRefusal('the unpacked image holds a program that changes its user');
    }
    if (entry.isDirectory()) await giveToRoot(path);
    await lchown(path, 0, 0);
  }
  await lchown(dir, 0, 0);
}
