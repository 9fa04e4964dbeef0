/** A session in which nothing runs outlives the agent of its host: what it held is there when the next agent is. */
import { readFile, writeFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import type { Execution } from '../../shared/execution.ts';
import { expectWholeChain, TERMINAL_WITHIN_MS } from './crash-checks.ts';
import { fork } from './forking.ts';
import { processesOf } from './leftovers.ts';
import { restsOf } from './rests.ts';
import { ORPHAN_GRACE_MS, useStack } from './stack.ts';
import { until } from './until.ts';

const HELD_FOR_S = 60;
/** Without a pool, which has a test of its own (`survival-pool.test.ts`). */
const stack = useStack(() => ({
  SANDGATE_POOL_CEILING: '0',
  SANDGATE_HELD_FOR_S: String(HELD_FOR_S),
  SANDGATE_DRAIN_TIMEOUT_S: '20',
}));

const { sandboxOf, heldFile, atRest, killAndReturn, returned, gone } = restsOf(stack);

describe('kill -9 of the host agent while a session is idle', () => {
  test('takes nothing from it, however often: variables of python and of the shell, epoch and receipts go on', async () => {
    const session = await stack().open();
    const sandboxId = await sandboxOf(session);
    const ended: Execution[] = [await session.py('kept = 41'), await session.sh('export KEPT=here; cd /tmp')];
    for (const _ of ['once', 'at once again']) {
      await atRest(sandboxId);
      await killAndReturn();
    }
    const python = await session.py('kept + 1');
    const shell = await session.sh('echo "$KEPT $PWD"');
    expect(python).toMatchObject({ status: 'succeeded', value: '42', state_lost: false });
    expect(shell).toMatchObject({ status: 'succeeded', stdout: 'here /tmp\n', state_lost: false });
    expect(await session.describe()).toMatchObject({ sandbox_id: sandboxId, epoch: session.opened.epoch });

    await atRest(sandboxId);
    await killAndReturn();
    const interrupted = await session.detach('python', { code: 'while True: pass' });
    await until('it runs', 10_000, async () =>
      (await session.execution(interrupted.execution_id)).status === 'running' ? true : undefined,
    );
    await session.interrupt();
    const late = await session.ended(interrupted.execution_id, TERMINAL_WITHIN_MS);
    expect(late.status).toBe('interrupted');
    const after = await session.py('kept + 2');
    expect(after).toMatchObject({ value: '43', state_lost: false });
    await expectWholeChain(session, [...ended, python, shell, late, after], new Set());
    await session.delete();
    await gone(sandboxId, ORPHAN_GRACE_MS);
  }, 120_000);

  test('takes nothing from one that went on from a snapshot, nor from a sandbox whose keeper was killed before', async () => {
    const session = await stack().open();
    await session.py('kept = 41');
    await session.api.request('POST', `${session.path}/suspend`);
    expect((await session.py('kept')).value).toBe('41');
    const sandboxId = await sandboxOf(session);
    await atRest(sandboxId);
    const [keeper] = (await processesOf(stack().stack.stateDir)).filter(({ command }) =>
      command.includes('/stream-keeper keep '),
    );
    if (keeper === undefined) throw new Error('nothing keeps its streams');
    process.kill(keeper.pid, 'SIGKILL');
    expect((await session.py('kept')).value).toBe('41');
    await atRest(sandboxId);
    await killAndReturn();
    expect(await session.py('kept + 1')).toMatchObject({ value: '42', state_lost: false });
    expect(await sandboxOf(session)).toBe(sandboxId);
    await session.delete();
    await gone(sandboxId, ORPHAN_GRACE_MS);
  }, 120_000);

  test('takes nothing from a fork, nor from the session that it was made of', async () => {
    const parent = await stack().open();
    await parent.py('kept = 41');
    const [child] = await fork(parent, 1);
    if (child === undefined) throw new Error('there is no fork');
    await child.py('kept = -kept');
    const sandboxIds = await Promise.all([parent, child].map(sandboxOf));
    for (const sandboxId of sandboxIds) await atRest(sandboxId);
    await killAndReturn();
    expect(await parent.py('kept + 1')).toMatchObject({ value: '42', state_lost: false });
    expect(await child.py('kept + 1')).toMatchObject({ value: '-40', state_lost: false });
    expect(await Promise.all([parent, child].map(sandboxOf))).toEqual(sandboxIds);
    await Promise.all([parent.delete(), child.delete()]);
    for (const sandboxId of sandboxIds) await gone(sandboxId, ORPHAN_GRACE_MS);
  }, 120_000);

  test('a call made while the agent is away waits for it and finds the state', async () => {
    const session = await stack().open();
    await session.py('kept = "here"');
    await atRest(await sandboxOf(session));
    const former = stack().hostAgentPid();
    await stack().stack.crashHostAgent();
    expect(await session.py('kept')).toMatchObject({ value: "'here'", state_lost: false });
    await returned(former);
    await session.delete();
  }, 60_000);

  test('a session that is deleted meanwhile leaves nothing once the agent is back', async () => {
    const session = await stack().open();
    await session.py('kept = 1');
    const sandboxId = await sandboxOf(session);
    await atRest(sandboxId);
    const former = stack().hostAgentPid();
    await stack().stack.crashHostAgent();
    await session.delete();
    await returned(former);
    await gone(sandboxId, ORPHAN_GRACE_MS);
    expect(await heldFile(sandboxId)).toBeUndefined();
  }, 60_000);

  test('a sandbox whose state says another thing than this agent knows is ended, and its session told', async () => {
    const session = await stack().open();
    await session.py('kept = 1');
    const sandboxId = await sandboxOf(session);
    const file = await atRest(sandboxId);
    const text = await readFile(file, 'utf8');
    const former = stack().hostAgentPid();
    await stack().stack.crashHostAgent();
    await writeFile(file, text.replace(/"runsc_version":"[^"]*"/, '"runsc_version":"another"'));
    await returned(former);
    await gone(sandboxId, ORPHAN_GRACE_MS);
    const after = await session.py('"kept" in globals()');
    expect(after).toMatchObject({ value: 'False', state_lost: true });
    await session.delete();
  }, 60_000);
});

describe('a stop of the host agent', () => {
  test('for another one lets a call end, and leaves the sandbox as it is then', async () => {
    const session = await stack().open();
    const sandboxId = await sandboxOf(session);
    const before = await session.py('kept = 41');
    const call = await session.detach('shell', {
      command: 'echo begin; sleep 3; export KEPT=here; echo end',
    });
    await until('it runs', 10_000, async () =>
      (await session.execution(call.execution_id)).stdout === 'begin\n' ? true : undefined,
    );
    const former = stack().hostAgentPid();
    process.kill(former, 'SIGUSR2');
    await returned(former);
    const ended = await session.ended(call.execution_id, TERMINAL_WITHIN_MS);
    expect(ended).toMatchObject({ status: 'succeeded', stdout: 'begin\nend\n', state_lost: false });
    const after = await session.sh('echo "$KEPT"');
    expect(after).toMatchObject({ stdout: 'here\n', state_lost: false });
    expect(await session.describe()).toMatchObject({ sandbox_id: sandboxId, epoch: session.opened.epoch });
    await expectWholeChain(session, [before, ended, after], new Set());
    await session.delete();
    await gone(sandboxId, ORPHAN_GRACE_MS);
  }, 60_000);

  test('for another one ends what a program still lives in, and says so', async () => {
    const session = await stack().open();
    const sandboxId = await sandboxOf(session);
    await session.sh('sleep 300 & disown');
    const former = stack().hostAgentPid();
    process.kill(former, 'SIGUSR2');
    await returned(former);
    await gone(sandboxId, ORPHAN_GRACE_MS);
    expect(await session.sh('true')).toMatchObject({ status: 'succeeded', state_lost: true });
    await session.delete();
  }, 60_000);

  test('for good leaves nothing', async () => {
    const session = await stack().open();
    const sandboxId = await sandboxOf(session);
    await atRest(sandboxId);
    const former = stack().hostAgentPid();
    process.kill(former, 'SIGTERM');
    await returned(former);
    await gone(sandboxId, ORPHAN_GRACE_MS);
    expect(await session.sh('true')).toMatchObject({ status: 'succeeded', state_lost: true });
    await session.delete();
  }, 60_000);
});

test('kill -9 in the middle of a call takes the sandbox, though it was at rest before', async () => {
  const session = await stack().open();
  await session.py('kept = 1');
  const sandboxId = await sandboxOf(session);
  await atRest(sandboxId);
  const running = await session.detach('shell', { command: 'echo begin; sleep 30' });
  await until('it runs', 10_000, async () =>
    (await session.execution(running.execution_id)).stdout === 'begin\n' ? true : undefined,
  );
  expect(await heldFile(sandboxId)).toBeUndefined();
  await killAndReturn();
  await gone(sandboxId, ORPHAN_GRACE_MS);
  expect(await session.ended(running.execution_id, TERMINAL_WITHIN_MS)).toMatchObject({
    status: 'unknown',
    state_lost: true,
  });
  expect(await session.py('"kept" in globals()')).toMatchObject({ value: 'False', state_lost: true });
  await session.delete();
}, 60_000);
