/**
 * One agent per state folder. The lock is a listening socket in Linux's abstract namespace, named by the folder's
 * device and inode: it is free the moment its holder dies, however it dies, and no stale file is left to judge.
 */
import { mkdir, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { failure, type Outcome, success } from '../../shared/errors.ts';

export interface StateLock {
  release(): Promise<void>;
}

export async function lockState(directory: string): Promise<Outcome<StateLock>> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
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
