/** The node tool. Its kernel starts with the first call: most sessions never make one, and it holds memory. */
import { PROGRAM_ARGUMENTS } from '../../../shared/code-mode.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import { startNodeKernel } from '../../guest-link/node-kernel.ts';
import { KernelTool } from './kernel.ts';
import type { ToolPlace } from './tool.ts';

export function nodeTool(link: GuestLink, place: ToolPlace): KernelTool {
  return new KernelTool({
    interpreter: 'node',
    start: (readyTimeoutMs) => startNodeKernel(link, { ...place, readyTimeoutMs }),
    cellOf: (argumentsJson) => PROGRAM_ARGUMENTS.node.parse(argumentsJson),
    warm: false,
  });
}
