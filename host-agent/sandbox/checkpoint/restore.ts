/**
 * Lets a sandbox go on from a checkpoint: everything the host knew of it is adopted before its first instruction. It
 * runs just long enough to be made ready, and then stands still until whoever asked for it has agreed to it.
 */
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { ToolName } from '../../../shared/tool.ts';
import type { Execution } from '../execution.ts';
import type { RestoredParts } from '../launcher.ts';
import type { OutputSink, ProgramListener, RestoredCall } from '../port.ts';
import { failedEnd, type RunningTool, type ToolIo } from '../tools/tool.ts';
import type { CarriedCall, CarriedSandbox } from './carried.ts';

export interface GoOn {
  isCopy: boolean;
  generation: number;
  /** Where the output of a call goes that ran. */
  sinkOf: (tool: ToolName) => OutputSink;
  /** Of a program: what becomes of its calls. */
  programOf?: ((tool: ToolName) => ProgramListener | undefined) | undefined;
  endsCall?: ((tool: ToolName) => boolean) | undefined;
  /** What else has to be made in it while it runs; false where it failed. */
  makeReady: () => Promise<boolean>;
  timeoutMs: number;
}

export interface ReadyToGoOn {
  calls: RestoredCall[];
  goOn: () => void;
}

/** Where it fails the sandbox is removed. */
export async function goOnFrom(
  restored: RestoredParts,
  state: CarriedSandbox,
  { isCopy, generation, timeoutMs, makeReady, endsCall = () => false, ...heard }: GoOn,
): Promise<Outcome<ReadyToGoOn>> {
  const { sandbox, parts } = restored;
  const { link, freezer, programs } = parts;
  const letSleep = freezer.hold();
  const calls = adoptCalls(restored, state, heard);
  programs.adopt(state.programs);
  const goes = await link.goOn(timeoutMs, { isCopy, generation, sandboxId: sandbox.id });
  const isReady = goes.ok && (await readied(calls, endsCall, makeReady));
  if (!isReady) {
    letSleep();
    await sandbox.destroy();
    return failure('restore_failed', goes.ok ? 'it was not made ready' : goes.failure.message);
  }
  const thaw = freezer.standStill();
  letSleep();
  const going = calls.filter(({ tool }) => !endsCall(tool));
  return success({
    calls: going,
    goOn: () => {
      thaw();
      for (const { execution } of going) execution.resume();
    },
  });
}

async function readied(
  calls: readonly (RestoredCall & { execution: Execution })[],
  endsCall: (tool: ToolName) => boolean,
  makeReady: () => Promise<boolean>,
): Promise<boolean> {
  const ended = calls.filter(({ tool }) => endsCall(tool));
  for (const { tool, execution } of ended) {
    // A kernel has variables to keep, so its cell is interrupted.
    if (tool === 'python' || tool === 'node') execution.interrupt();
    else execution.kill();
  }
  const [isReady] = await Promise.all([makeReady(), ...ended.map(({ execution }) => execution.finished)]);
  return isReady;
}

function adoptCalls(
  { sandbox, parts }: RestoredParts,
  { calls, tools }: CarriedSandbox,
  { sinkOf, programOf }: Pick<GoOn, 'sinkOf' | 'programOf'>,
): (RestoredCall & { execution: Execution })[] {
  const { link } = parts;
  const { python, node, shell, run, file } = parts.tools;
  file.adopt(link, tools.file);
  const adopt: Record<ToolName, (io: ToolIo | undefined) => RunningTool | undefined> = {
    python: (io) => python.adopt(link, tools.python, io),
    node: (io) => node.adopt(link, tools.node, io),
    shell: (io) => shell.adopt(link, tools.shell, io),
    file: () => undefined,
    run: (io) => run.adopt(link, tools.run, io),
  };
  const adopted: (RestoredCall & { execution: Execution })[] = [];
  const goOnWith = (call: CarriedCall): void => {
    const { tool, takes_stdin: stdin } = call;
    const execution = sandbox.goOnWith(call, {
      sink: sinkOf(tool),
      program: programOf?.(tool),
      run: (io) => adopt[tool]({ ...io, stdin }) ?? LOST_CALL,
    });
    adopted.push({ tool, execution });
  };
  for (const tool of ['python', 'node', 'shell', 'run'] as const) {
    const call = calls.find((candidate) => candidate.tool === tool);
    if (call === undefined) adopt[tool](undefined);
    else goOnWith(call);
  }
  return adopted;
}

const LOST_CALL: RunningTool = {
  ended: Promise.resolve(failedEnd('InternalError', 'the call is not in the checkpoint')),
  writeStdin: async () => failure('execution_not_running', 'the program has ended'),
  stop: async () => undefined,
};
