/** Starts the JavaScript kernel of a sandbox. */
import type { GuestResult } from './failure.ts';
import type { GuestLink } from './guest-link.ts';
import { Kernel, type KernelPlace } from './kernel.ts';

const SCRIPT = '/sandgate/kernels/node.mjs';
/**
 * Node keeps the lowest descriptors that it is started with from the programs it starts, but not those of the control
 * pair, and it has no means to: so a shell gives them other numbers first.
 */
const RENUMBERED = 'exec "$@" 10<&198 11>&199 198<&- 199>&-';
/**
 * Few threads, for each counts as one of the sandbox's processes; and no check of the stack of async hooks, which is fatal
 * where a callback was broken into.
 */
const NODE_FLAGS = ['--v8-pool-size=1', '--no-force-async-hooks-checks'];

export interface NodeStart extends KernelPlace {
  /** By default `node` of the path. */
  readonly interpreter?: string;
  /** Where the kernel's script lies in the sandbox. */
  readonly script?: string;
}

export function startNodeKernel(link: GuestLink, options: NodeStart): Promise<GuestResult<Kernel>> {
  const { interpreter = 'node', script = SCRIPT, ...place } = options;
  return Kernel.start(link, {
    ...place,
    argv: ['bash', '-c', RENUMBERED, 'bash', interpreter, ...NODE_FLAGS, script],
  });
}
