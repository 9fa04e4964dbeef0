/**
 * One agent per state folder. The lock is a listening socket in Linux's abstract namespace, named by the folder's
 * device and inode: it is free the moment its holder dies, however it dies, and no stale file is left to judge.
 */
import { mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { getSystemErrorMessage } from 'node:util';
import { failure, type Outcome, success } from '../../shared/errors.ts';

export interface StateLock {
  release(): Promise<void>;
}

/** As much as the smallest file takes on a disk. */
const PROBE_BYTES = 4096;

export async function lockState(directory: string): Promise<Outcome<StateLock>> {
  const reason = await whyNotWritable(directory);
  if (reason !== undefined) return failure('internal', `${directory} cannot be written: ${reason}`);
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

/** A disk that is full or read-only is told by its name, before anything is begun on it. */
async function whyNotWritable(directory: string): Promise<string | undefined> {
  const probe = join(directory, 'probe');
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 }).catch(() =>
      // Node says ENOENT where the parent cannot be written; without `recursive` it says what is wrong.
      mkdir(directory, { mode: 0o700 }),
    );
    await writeFile(probe, Buffer.alloc(PROBE_BYTES));
    await rm(probe);
    return undefined;
  } catch (error: unknown) {
    await rm(probe, { force: true }).catch(() => undefined);
    const errno = error instanceof Error && 'errno' in error ? error.errno : undefined;
    return typeof errno === 'number' ? getSystemErrorMessage(errno) : String(error);
  }
}
