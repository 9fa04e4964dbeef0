/**
 * One agent per state folder. The lock is a listening socket in Linux's abstract namespace, named by the folder's
 * device and inode: it is free the moment its holder dies, however it dies, and no stale file is left to judge.
 */
import { mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { getSystemErrorMessage } from 'node:util';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';

export interface StateLock {
  release(): Promise<void>;
}

/** As much as the smallest file takes on a disk. */
const PROBE_BYTES = 4096;

/** Needs no room on the disk where the folder is there already: what fills it may wait for the holder to remove it. */
export async function lockState(directory: string): Promise<Outcome<StateLock>> {
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 }).catch(() =>
      // Node says ENOENT where the parent cannot be written; without `recursive` it says what is wrong.
      mkdir(directory, { mode: 0o700 }),
    );
  } catch (error: unknown) {
    return notWritable(directory, error);
  }
  const { dev, ino } = await stat(directory);
  const server = createServer((socket) => socket.destroy());
  server.unref();
  const listening = await new Promise<boolean>((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(`\0sandgate-host-agent-${dev}-${ino}`, () => resolve(true));
  });
  if (!listening) return failure('internal', `another host agent uses ${directory}`);
  return success({ release: () => new Promise((resolve) => server.close(() => resolve())) });
}

/** A disk that is full or read-only is told by its name. For the holder of the lock. */
export async function probeWritable(directory: string): Promise<Outcome<null>> {
  const probe = join(directory, 'probe');
  try {
    await writeFile(probe, Buffer.alloc(PROBE_BYTES));
    await rm(probe);
    return success(null);
  } catch (error: unknown) {
    await rm(probe, { force: true }).catch(() => undefined);
    return notWritable(directory, error);
  }
}

function notWritable(directory: string, error: unknown): Failure {
  const errno = error instanceof Error && 'errno' in error ? error.errno : undefined;
  const reason = typeof errno === 'number' ? getSystemErrorMessage(errno) : String(error);
  return failure('internal', `${directory} cannot be written: ${reason}`);
}
