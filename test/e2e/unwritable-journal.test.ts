/** F27 and then F03: what was told while the disk took nothing stays told, though the host forgets it. */
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { verifyChain } from '../../shared/receipt-verify.ts';
import { FailingDisk } from '../fixtures/edge-double/failing-disk.ts';
import { canMount } from '../fixtures/edge-double/small-disk.ts';
import { PATIENCE_MS } from '../patience.ts';
import { Refused, type SessionClient } from './client.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

/** More than the host keeps free. */
const DISK_BYTES = 4 * 1024 ** 3;

let disk: FailingDisk | undefined;
const stack = useStack((stateDir) => {
  disk = new FailingDisk({ path: join(stateDir, 'host'), sizeBytes: DISK_BYTES });
  return { SANDGATE_POOL_CEILING: '0' };
});
// Before the stack looks at what it leaves: hooks of the end run from the last to the first.
afterAll(() => disk?.remove());

async function untilItSays(session: SessionClient, executionId: string, stdout: string): Promise<void> {
  await until(`it says ${stdout}`, PATIENCE_MS, async () =>
    (await session.execution(executionId)).stdout === stdout ? true : undefined,
  );
}

describe.skipIf(!canMount)('a host that is lost while its disk takes nothing', () => {
  test('F27 never takes back an end that it told: what the edge has of it stays, and only what ran is unknown', {
    timeout: 6 * PATIENCE_MS,
  }, async () => {
    const session = await stack().open();
    const ends = 'echo begun; read -r line; echo "$line"';
    const ending = await session.detach('shell', { command: ends }, { timeoutMs: PATIENCE_MS });
    const python = 'import time\nprint("runs", flush=True)\ntime.sleep(1000)';
    const running = await session.detach('python', { code: python }, { timeoutMs: 2 * PATIENCE_MS });
    await untilItSays(session, ending.execution_id, 'begun\n');
    await untilItSays(session, running.execution_id, 'runs\n');
    disk?.makeReadOnly();
    const stdin = `${session.path}/executions/${ending.execution_id}/stdin`;
    const given = await session.api.request('POST', stdin, { body: { data: 'ended\n' } });
    expect(given.status, given.text).toBeLessThan(300);
    const told = await session.ended(ending.execution_id, PATIENCE_MS);
    expect(told).toMatchObject({ status: 'succeeded', stdout: 'begun\nended\n' });
    await expect(stack().open()).rejects.toThrow(Refused);

    const former = stack().hostAgentPid();
    await stack().stack.crashHostAgent();
    await until('the disk is mended', PATIENCE_MS, () => disk?.repaired());
    await until('the agent is started again', PATIENCE_MS, () => {
      const pid = stack().stack.hostAgentPid();
      return pid === undefined || pid === former ? undefined : true;
    });
    await stack().stack.ready();

    const lost = await session.ended(running.execution_id, PATIENCE_MS);
    expect(lost.status).toBe('unknown');
    const next = await until('the session runs calls again', PATIENCE_MS, () =>
      session.sh('echo next').catch((error: unknown) => {
        if (error instanceof Refused && error.problem.retryable) return undefined;
        throw error;
      }),
    );
    expect(next).toMatchObject({ status: 'succeeded', stdout: 'next\n', state_lost: true });
    const still = await session.execution(ending.execution_id);
    expect(still).toMatchObject({
      status: 'succeeded',
      stdout: 'begun\nended\n',
      finished_at: told.finished_at,
    });
    expect(await session.receipt(ending.execution_id)).toEqual(told.receipt);
    const exported = await session.receipts();
    expect(await verifyChain(exported.receipts, exported.keys, session.id)).toMatchObject({ ok: true });
    await session.delete();
  });
});
