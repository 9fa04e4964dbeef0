/** The python tool. */
import { PROGRAM_ARGUMENTS } from '../../../shared/code-mode.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import { startPythonKernel } from '../../guest-link/python-kernel.ts';
import { KernelTool } from './kernel.ts';
import type { ToolPlace } from './tool.ts';

/**
 * `imports` are modules that its first kernel loads before it is ready, where the image has them; a later one has a call
 * that waits for it.
 */
export function pythonTool(link: GuestLink, place: ToolPlace, imports: readonly string[] = []): KernelTool {
  let ahead = imports;
  return new KernelTool({
    interpreter: 'python3',
    start: (readyTimeoutMs) => {
      const started = startPythonKernel(link, { ...place, readyTimeoutMs, imports: ahead });
      ahead = [];
      return started;
    },
    cellOf: (argumentsJson) => PROGRAM_ARGUMENTS.python.parse(argumentsJson),
    warm: true,
  });
}
