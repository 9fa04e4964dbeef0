/** What the suite needs of a running supervisor, and small tools to drive it. */

import type { Channel, OutputStream } from '../../../host-agent/guest-link/channel.ts';
import type { GuestResult } from '../../../host-agent/guest-link/failure.ts';
import { FileServer } from '../../../host-agent/guest-link/file-server.ts';
import type { GuestLink } from '../../../host-agent/guest-link/guest-link.ts';
import { PATIENCE_MS } from '../../patience.ts';

export interface GuestUnderTest {
  readonly link: GuestLink;
  /** Where the guest's own programs lie, as the programs in the sandbox see it. */
  readonly programs: string;
  /** A writable folder, as the programs in the sandbox see it. */
  readonly work: string;
  /** Settles when the supervisor's process, or its sandbox, ended. */
  readonly ended: Promise<void>;
  stop(): Promise<void>;
}

export const ENVIRONMENT = ['PATH=/usr/local/bin:/usr/bin:/bin', 'LANG=C.UTF-8', 'HOME=/tmp'];

export function must<T>(result: GuestResult<T>): T {
  if (!result.ok) throw new Error(`${result.failure.reason}: ${result.failure.message}`);
  return result.value;
}

export class Output {
  readonly chunks: { stream: OutputStream; bytes: Uint8Array }[] = [];
  readonly sink = (stream: OutputStream, bytes: Uint8Array): void => {
    this.chunks.push({ stream, bytes });
  };

  bytes(stream: OutputStream): Buffer {
    return Buffer.concat(this.chunks.filter((chunk) => chunk.stream === stream).map((chunk) => chunk.bytes));
  }

  text(stream: OutputStream = 'stdout'): string {
    return this.bytes(stream).toString('utf8');
  }
}

/** Waits for what the sandbox does on its own; fails when it does not happen. */
export async function eventually(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`did not happen: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export interface Started {
  readonly channel: Channel;
  readonly output: Output;
}

export async function startBash(guest: GuestUnderTest, command: string): Promise<Started> {
  const output = new Output();
  const channel = must(
    await guest.link.spawn({
      argv: ['bash', '-c', command],
      cwd: guest.work,
      environment: ENVIRONMENT,
      onOutput: output.sink,
    }),
  );
  return { channel, output };
}

/** Runs a command to its end, whatever it leaves behind is killed. */
export async function bash(guest: GuestUnderTest, command: string) {
  const { channel, output } = await startBash(guest, command);
  const exit = must(await channel.exited);
  must(await channel.release(PATIENCE_MS));
  return { ...exit, stdout: output.text(), stderr: output.text('stderr') };
}

/** A file server in a folder of its own below the guest's work folder. */
export async function startFileServer(
  guest: GuestUnderTest,
  folder: string,
): Promise<{ files: FileServer; cwd: string }> {
  const cwd = `${guest.work}/${folder}`;
  await bash(guest, `mkdir -p ${cwd}`);
  const files = must(
    await FileServer.start(guest.link, {
      cwd,
      environment: ENVIRONMENT,
      readyTimeoutMs: PATIENCE_MS,
      program: `${guest.programs}/files`,
    }),
  );
  return { files, cwd };
}
