/** F07: the agent stands still for a minute, as on a machine that was suspended, and then goes on. */
import { describe, expect, test } from 'vitest';
import { verifyChain } from '../../shared/receipt-verify.ts';
import { Refused } from '../e2e/client.ts';
import { processesOf } from '../e2e/leftovers.ts';
import { useStack } from '../e2e/stack.ts';
import { pause, until } from '../e2e/until.ts';

const STILL_MS = 60_000;
const DEADLINE_MS = 5_000;
const stack = useStack();

describe('F07 an agent that stands still for a minute', () => {
  test('loses its lease: the call has an end meanwhile, and what it says later changes nothing', async () => {
    const session = await stack().open();
    await session.sh('echo before');
    const running = await session.detach(
      'shell',
      { command: 'echo begun; sleep 3; echo late' },
      { timeoutMs: DEADLINE_MS },
    );
    await until('it runs', 20_000, async () =>
      (await session.execution(running.execution_id)).stdout === 'begun\n' ? true : undefined,
    );
    const pid = stack().hostAgentPid();
    process.kill(pid, 'SIGSTOP');
    const stoppedMs = performance.now();
    const ended = await session.ended(running.execution_id, DEADLINE_MS + STILL_MS);
    expect(ended).toMatchObject({ status: 'unknown' });
    expect(performance.now() - stoppedMs).toBeLessThan(DEADLINE_MS + STILL_MS);
    await pause(Math.max(0, STILL_MS - (performance.now() - stoppedMs)));
    process.kill(pid, 'SIGCONT');
    await stack().stack.ready();
    // The only host of this stack was dead for the edge: there was none to bind the session to. It says so, and stays so.
    await expect(session.sh('echo after')).rejects.toThrow(/host_lost/);
    const next = await until('the edge places a session on it again', 60_000, () =>
      stack()
        .open()
        .catch((error: unknown) => {
          if (error instanceof Refused && error.problem.retryable) return undefined;
          throw error;
        }),
    );
    expect((await next.sh('echo next')).stdout).toBe('next\n');
    await next.delete();
    expect(stack().hostAgentPid()).toBe(pid);
    const again = await session.execution(running.execution_id);
    expect(again).toMatchObject({ status: 'unknown', finished_at: ended.finished_at });
    const exported = await session.receipts();
    expect(await verifyChain(exported.receipts, exported.keys, session.id)).toMatchObject({ ok: true });
    const { sandbox_id: sandboxId } = session.opened;
    await session.delete();
    // What ran under the lease that was lost is ended too.
    await until('its sandbox is gone', 30_000, async () =>
      (await processesOf(stack().stack.stateDir)).some(({ command }) => command.includes(sandboxId ?? 'sbx-'))
        ? undefined
        : true,
    );
  }, 300_000);
});
