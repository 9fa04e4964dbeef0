/** How an execution ended, from what its tool, its sandbox and our own stopping say. */
import type { CgroupUsage } from '../cgroup/cgroups.ts';
import type { LostReason, ToolOutcome } from './port.ts';
import type { StopCause, ToolEnd } from './tools/tool.ts';

export interface OutcomeInput {
  end: ToolEnd;
  /** Why we stopped the program, if we did. */
  cause: StopCause | undefined;
  /** Set when the sandbox is gone. */
  lost: LostReason | undefined;
  before: CgroupUsage;
  after: CgroupUsage;
  egressBytes: number;
  /** Asked only of a call that failed by itself. */
  claimMemoryKill: () => boolean;
}

export function toolOutcome(input: OutcomeInput): ToolOutcome {
  const { end, before, after } = input;
  return {
    status: statusOf(input),
    exitCode: end.exitCode,
    signal: end.signal,
    error: end.error,
    value: end.value,
    structured: end.structured,
    results: end.results,
    stateLost: end.stateLost || input.lost !== undefined,
    shell: end.shell,
    usage: {
      cpuMs: Math.max(0, after.cpuMs - before.cpuMs),
      peakMemoryBytes: after.peakMemoryBytes,
      egressBytes: input.egressBytes,
    },
  };
}

function statusOf({ end, cause, lost, claimMemoryKill }: OutcomeInput): ToolOutcome['status'] {
  if (cause === 'timeout') return 'timeout';
  if (end.status === 'lost') return statusOfLost(lost);
  if (end.status === 'succeeded') return 'succeeded';
  if (cause === 'interrupt') return 'interrupted';
  // A process of the call died for memory while the sandbox lived on; its exit code does not tell.
  if (claimMemoryKill()) return 'oom';
  // Without our asking, a program that interrupts itself has ended by itself.
  return 'failed';
}

function statusOfLost(lost: LostReason | undefined): ToolOutcome['status'] {
  switch (lost) {
    case 'oom':
      return 'oom';
    case 'destroyed':
      return 'interrupted';
    case 'crashed':
    case undefined:
      return 'crashed';
  }
}
