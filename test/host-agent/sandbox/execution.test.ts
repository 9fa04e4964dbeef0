import { describe, expect, it } from 'vitest';
import { Execution, STOP_PATIENCE } from '../../../host-agent/sandbox/execution.ts';
import {
  type RunningTool,
  type StopCause,
  type ToolEnd,
  toolEnd,
} from '../../../host-agent/sandbox/tools/tool.ts';
import { HOST_ANSWER_GRACE_MS } from '../../../shared/limits.ts';
import { STUCK_MS } from '../../patience.ts';

interface Played {
  execution: Execution;
  stops: StopCause[];
  abandoned: () => number;
  end: (end: ToolEnd) => void;
}

/** An execution of a tool that ends when the test says so, or as soon as it is stopped. */
function play({ timeoutMs = 60_000, obeys = true }): Played {
  const ended = Promise.withResolvers<ToolEnd>();
  const stops: StopCause[] = [];
  let abandoned = 0;
  const tool: RunningTool = {
    ended: ended.promise,
    writeStdin: async () => ({ ok: true, value: null }),
    stop: async (cause) => {
      stops.push(cause);
      if (!obeys) return new Promise(() => undefined);
      ended.resolve(toolEnd({ status: 'failed', exitCode: 137 }));
    },
  };
  const execution: Execution = new Execution(
    {
      usage: () => ({ oomKills: 0, cpuMs: 0, peakMemoryBytes: 0 }),
      takeEgressBytes: () => 0,
      begin: () => ({ oomKills: 0, cpuMs: 0, peakMemoryBytes: 0 }),
      claimMemoryKill: () => false,
      abandon: () => {
        abandoned += 1;
        execution.sandboxLost('destroyed');
      },
    },
    { timeoutMs, sink: async () => undefined, run: () => tool },
  );
  return { execution, stops, abandoned: () => abandoned, end: ended.resolve };
}

describe('an execution', () => {
  it('ends with its tool', async () => {
    const { execution, end, stops } = play({});
    end(toolEnd({ exitCode: 0, value: '1' }));
    expect(await execution.finished).toMatchObject({ status: 'succeeded', exitCode: 0, value: '1' });
    execution.interrupt();
    expect(stops).toEqual([]);
  });

  it('stops its tool once, for the first reason', async () => {
    const { execution, stops } = play({ timeoutMs: 1 });
    execution.interrupt();
    execution.interrupt();
    expect((await execution.finished).status).toBe('interrupted');
    expect(stops).toEqual(['interrupt']);
  });

  it('is a timeout at its deadline', async () => {
    const { execution, stops } = play({ timeoutMs: 10 });
    expect((await execution.finished).status).toBe('timeout');
    expect(stops).toEqual(['timeout']);
  });

  it.each(['timeout', 'interrupt'] as const)(
    'gives up the sandbox of a tool that does not obey a %s, while the edge still waits',
    async (cause) => {
      expect(STOP_PATIENCE[cause].abandonMs).toBeLessThan(HOST_ANSWER_GRACE_MS);
      const beganMs = performance.now();
      const { execution, abandoned } = play({ timeoutMs: cause === 'timeout' ? 1 : 60_000, obeys: false });
      if (cause === 'interrupt') execution.interrupt();
      const outcome = await execution.finished;
      expect(outcome.status).toBe(cause === 'timeout' ? 'timeout' : 'interrupted');
      expect(outcome.stateLost).toBe(true);
      expect(abandoned()).toBe(1);
      expect(performance.now() - beganMs).toBeLessThan(STUCK_MS);
    },
  );

  it.each([
    ['oom', 'oom'],
    ['crashed', 'crashed'],
    ['destroyed', 'interrupted'],
  ] as const)('of a sandbox lost as %s is %s, though the tool never ends', async (reason, status) => {
    const { execution } = play({});
    execution.sandboxLost(reason);
    expect(await execution.finished).toMatchObject({ status, stateLost: true, exitCode: null });
  });

  it('waits for the sandbox to say why when the link broke first', async () => {
    const { execution, end } = play({});
    end(toolEnd({ status: 'lost', stateLost: true }));
    await new Promise(setImmediate);
    execution.sandboxLost('oom');
    expect((await execution.finished).status).toBe('oom');
  });
});
