/** The tools of one sandbox. */
import type { FileTool } from './file.ts';
import type { KernelTool } from './kernel.ts';
import type { RunTool } from './run/run.ts';
import type { ShellTool } from './shell.ts';

export interface SandboxTools {
  python: KernelTool;
  node: KernelTool;
  shell: ShellTool;
  file: FileTool;
  run: RunTool;
}
