/** Kernels under test, and cells in them. */
import type { Kernel } from '../../../../host-agent/guest-link/kernel.ts';
import { startPythonKernel } from '../../../../host-agent/guest-link/python-kernel.ts';
import { PATIENCE_MS } from '../../../patience.ts';
import { ENVIRONMENT, type GuestUnderTest, must, Output } from '../guest-under-test.ts';

export async function startPython({ link, work, programs }: GuestUnderTest): Promise<Kernel> {
  return must(
    await startPythonKernel(link, {
      cwd: work,
      environment: ENVIRONMENT,
      readyTimeoutMs: PATIENCE_MS,
      script: `${programs}/kernels/python.py`,
    }),
  );
}

/** `kernel`: the one that runs now, for a test may replace it. */
export function cellsOf(kernel: () => Kernel) {
  const begin = (code: string, stdin = false) => {
    const output = new Output();
    return { output, ended: kernel().execute({ code, onOutput: output.sink, stdin }) };
  };
  const run = async (code: string) => {
    const { output, ended } = begin(code);
    const outcome = must(await ended);
    return { ...outcome, stdout: output.text(), stderr: output.text('stderr') };
  };
  return { begin, run };
}
