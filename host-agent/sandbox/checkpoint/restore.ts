/** Lets a sandbox go on from a checkpoint: everything the host knew of it is adopted before its first instruction. */
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { RestoredParts } from '../launcher.ts';
import type { OutputSink, RunningExecution } from '../port.ts';
import { failedEnd, type RunningTool } from '../tools/tool.ts';
import type { CarriedSandbox } from './carried.ts';

export interface GoOn {
  /** Where the output of a call that ran goes. */
  sink: OutputSink;
  timeoutMs: number;
}

/** The call that ran at the checkpoint, if one did. Where it fails the sandbox is removed. */
export async function goOnFrom(
  { sandbox, parts }: RestoredParts,
  state: CarriedSandbox,
  { sink, timeoutMs }: GoOn,
): Promise<Outcome<RunningExecution | null>> {
  const { link, freezer, programs } = parts;
  const letSleep = freezer.hold();
  const execution =
    state.call === null ? undefined : sandbox.goOnWith(state.call, sink, (gated) => adopt(gated));
  if (execution === undefined) adopt(undefined);
  programs.adopt(state.programs);
  const goes = await link.goOn(timeoutMs, true);
  letSleep();
  if (!goes.ok) {
    await sandbox.destroy();
    return failure('restore_failed', goes.failure.message);
  }
  execution?.resume();
  return success(execution ?? null);

  function adopt(gated: OutputSink | undefined): RunningTool {
    const { python, node, shell } = parts.tools;
    const { tool, takes_stdin: stdin = false } = state.call ?? {};
    const ioOf = (name: typeof tool) =>
      gated !== undefined && tool === name ? { sink: gated, stdin } : undefined;
    const running = {
      python: python.adopt(link, state.tools.python, ioOf('python')),
      node: node.adopt(link, state.tools.node, ioOf('node')),
      shell: shell.adopt(link, state.tools.shell, ioOf('shell')),
      file: undefined,
    };
    return (tool === undefined ? undefined : running[tool]) ?? LOST_CALL;
  }
}

const LOST_CALL: RunningTool = {
  ended: Promise.resolve(failedEnd('InternalError', 'the call is not in the checkpoint')),
  writeStdin: async () => failure('execution_not_running', 'the program has ended'),
  stop: async () => undefined,
};
