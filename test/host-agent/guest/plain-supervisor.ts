/** The supervisor as a process of this machine, PID 1 of a namespace of its own where that is allowed. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GuestLink } from '../../../host-agent/guest-link/guest-link.ts';
import { PATIENCE_MS } from '../../patience.ts';
import { compileGuest } from './compiled-guest.ts';
import type { GuestUnderTest } from './guest-under-test.ts';

function supervisorCommand(folder: string): string[] {
  const program = join(folder, 'supervisor');
  return process.getuid?.() === 0 ? ['unshare', '--pid', '--fork', '--mount-proc', program] : [program];
}

export async function startPlain(): Promise<GuestUnderTest> {
  const folder = mkdtempSync(join(tmpdir(), 'sandgate-guest-'));
  compileGuest(folder);
  const [command = '', ...args] = supervisorCommand(folder);
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const link = new GuestLink({ stdin: child.stdin, stdout: child.stdout });
  const ready = await link.ready(PATIENCE_MS);
  if (!ready.ok) throw new Error(ready.failure.message);
  return {
    link,
    programs: folder,
    work: folder,
    ended,
    stop: async () => {
      link.close();
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
