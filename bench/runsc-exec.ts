/** The peer: `runsc exec` into a sandbox of the same kind as a session's, with the flags it was started with. */
import { run } from '../host-agent/process/run.ts';
import { globalFlags } from '../host-agent/runsc/flags.ts';
import { FIRST_SANDBOX_USER } from '../host-agent/sandbox/spec.ts';

export interface ExecTarget {
  runscPath: string;
  rootDir: string;
  sandboxId: string;
}

export async function runscExec(target: ExecTarget, argv: string[]): Promise<void> {
  const completed = await run(
    {
      file: target.runscPath,
      argv: [
        ...globalFlags(target.rootDir),
        'exec',
        `--user=${FIRST_SANDBOX_USER}:${FIRST_SANDBOX_USER}`,
        target.sandboxId,
        ...argv,
      ],
      environment: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
    },
    { timeoutMs: 60_000, maxOutputBytes: 65_536 },
  );
  if (completed.exitCode !== 0) throw new Error(`runsc exec: ${completed.stderr}`);
}
