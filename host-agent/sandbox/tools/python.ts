/** The python tool. */
import { PythonArgumentsSchema } from '../../../shared/tool.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import { startPythonKernel } from '../../guest-link/python-kernel.ts';
import { KernelTool } from './kernel.ts';
import type { ToolPlace } from './tool.ts';

export function pythonTool(link: GuestLink, place: ToolPlace): KernelTool {
  return new KernelTool({
    interpreter: 'python3',
    start: (readyTimeoutMs) => startPythonKernel(link, { ...place, readyTimeoutMs }),
    codeOf: (argumentsJson) => PythonArgumentsSchema.parse(argumentsJson).code,
    warm: true,
  });
}
