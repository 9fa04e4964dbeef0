/** The machine fails the host agent: power, its programs, its state. */
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { verifyChain } from '../../shared/receipt-verify.ts';
import { PATIENCE_MS } from '../patience.ts';
import { firstCallAfter, TERMINAL_WITHIN_MS } from './crash-checks.ts';
import { processesOf, processesOfSandbox } from './leftovers.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const stack = useStack();

describe('F08 one process of a sandbox', () => {
  test('the sentry killed ends the call as crashed, and the host goes on', async () => {
    const [session, neighbour] = [await stack().open(), await stack().open()];
    const running = await session.detach('shell', { command: 'echo begun; sleep 60; ls /usr' });
    await until('it runs', PATIENCE_MS, async () =>
      (await session.execution(running.execution_id)).stdout === 'begun\n' ? true : undefined,
    );
    const { sandbox_id: sandboxId } = await session.describe();
    // Nothing stands beside it: no process of the host serves its files.
    const sentry = await until('the sandbox is one process', PATIENCE_MS, async () => {
      const [only, ...others] = await processesOfSandbox(stack().stack.stateDir, sandboxId ?? '');
      return others.length === 0 && only?.command.startsWith('runsc-sandbox') ? only : undefined;
    });
    process.kill(sentry.pid, 'SIGKILL');
    const ended = await session.ended(running.execution_id, TERMINAL_WITHIN_MS);
    expect(ended).toMatchObject({ status: 'crashed', state_lost: true, stdout: 'begun\n' });
    expect((await neighbour.sh('echo neighbour')).stdout).toBe('neighbour\n');
    expect((await firstCallAfter(session, 'echo again')).stdout).toBe('again\n');
    await until('nothing of the sandbox is left', PATIENCE_MS, async () =>
      (await processesOfSandbox(stack().stack.stateDir, sandboxId ?? '')).length === 0 ? true : undefined,
    );
    await session.delete();
    await neighbour.delete();
  });
});

describe('F09 a power loss', () => {
  test('in which everything dies at once and the last write is torn tells an honest end', async () => {
    const { stateDir } = stack().stack;
    const session = await stack().open();
    await session.sh('echo before');
    const running = await session.detach('shell', { command: 'echo begun; sleep 60' });
    await until('it runs', PATIENCE_MS, async () =>
      (await session.execution(running.execution_id)).stdout === 'begun\n' ? true : undefined,
    );
    const former = stack().hostAgentPid();
    process.kill(former, 'SIGSTOP');
    for (const { pid, command } of await processesOf(stateDir)) {
      if (pid !== former && command.includes('runsc')) process.kill(pid, 'SIGKILL');
    }
    const journal = await open(join(stateDir, 'host/journal/journal'), 'a');
    await journal.write(Buffer.from([0, 0, 1, 7, 0x7b, 0x22]));
    await journal.close();
    process.kill(former, 'SIGKILL');
    const ended = await session.ended(running.execution_id, TERMINAL_WITHIN_MS);
    expect(ended).toMatchObject({ status: 'unknown', state_lost: true, stdout: 'begun\n' });
    expect((await firstCallAfter(session, 'echo after')).stdout).toBe('after\n');
    const exported = await session.receipts();
    expect(await verifyChain(exported.receipts, exported.keys, session.id)).toMatchObject({ ok: true });
    await session.delete();
  });
});
