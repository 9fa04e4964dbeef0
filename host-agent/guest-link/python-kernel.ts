/** Starts the Python kernel of a sandbox. */
import type { GuestResult } from './failure.ts';
import type { GuestLink } from './guest-link.ts';
import { Kernel, type KernelPlace } from './kernel.ts';

const SCRIPT = '/sandgate/kernels/python.py';

export interface PythonStart extends KernelPlace {
  /** By default `python3` of the path. */
  readonly interpreter?: string;
  /** Where the kernel's script lies in the sandbox. */
  readonly script?: string;
  /** Modules that it loads before it is ready, where there are such. */
  readonly imports?: readonly string[];
}

export function startPythonKernel(link: GuestLink, options: PythonStart): Promise<GuestResult<Kernel>> {
  const { interpreter = 'python3', script = SCRIPT, imports = [], ...place } = options;
  return Kernel.start(link, { ...place, argv: [interpreter, script, ...imports] });
}
