/** The service on a machine that systemd runs; on any other, and below another root, there is nothing to tell. */
import { existsSync } from 'node:fs';
import { run } from '../process/run.ts';
import { CommandFailure } from './failure.ts';
import { type Layout, SERVICE } from './layout.ts';

const SYSTEMCTL = '/usr/bin/systemctl';
/** A stop drains: see the unit. */
const SYSTEMCTL_TIMEOUT_MS = 300_000;
const MAX_OUTPUT_BYTES = 16 * 1024;

export function hasSystemd({ root }: Layout): boolean {
  return root === '/' && existsSync('/run/systemd/system');
}

/** False where systemd does not run this machine. */
export async function systemctl(layout: Layout, ...argv: string[]): Promise<boolean> {
  if (!hasSystemd(layout)) return false;
  const completed = await run(
    { file: SYSTEMCTL, argv, environment: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' } },
    { timeoutMs: SYSTEMCTL_TIMEOUT_MS, maxOutputBytes: MAX_OUTPUT_BYTES },
  );
  if (completed.exitCode === 0) return true;
  const reason = completed.startFailure ?? completed.stderr.trim().split('\n')[0] ?? '';
  throw new CommandFailure(`systemctl ${argv.join(' ')}: ${reason}`);
}

/** `active`, `inactive`, `failed`, …; undefined without systemd. */
export async function serviceState(layout: Layout): Promise<string | undefined> {
  if (!hasSystemd(layout)) return undefined;
  const completed = await run(
    { file: SYSTEMCTL, argv: ['is-active', SERVICE], environment: { PATH: '/usr/bin:/bin' } },
    { timeoutMs: SYSTEMCTL_TIMEOUT_MS, maxOutputBytes: MAX_OUTPUT_BYTES },
  );
  return completed.stdout.trim() || 'unknown';
}
