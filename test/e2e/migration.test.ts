/** Sessions that move to another host in the middle of a call, over the whole stack. */
import { describe, expect, test } from 'vitest';
import { readReceipt } from '../../shared/receipt-verify.ts';
import { SessionSchema } from '../../shared/session.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { collected, type SeenEvent } from './event-stream.ts';
import { printWhileMoving } from './moving.ts';
import { useSecondHost } from './second-host.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const MIB = 1024 * 1024;
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));
const second = useSecondHost(stack);

const byName = (left: string | null, right: string | null): number =>
  String(left).localeCompare(String(right));

describe('a session that migrates', () => {
  test('goes on with its call on the other host and back, and its reader sees one stream', {
    timeout: 400_000,
  }, async () => {
    const session = await stack().open();
    const { hosts } = await printWhileMoving(session, { numbers: 1_500, rounds: 2, stateBytes: 32 * MIB });
    const first = stack().stack.hostId ?? '';
    const known = [first, second().hostId].toSorted(byName);
    expect([...new Set(hosts)].toSorted(byName)).toEqual(known);
    expect(hosts[0]).toBe(hosts[2]);
    await session.delete();
  });

  test('goes on with its call on the other host when its own is drained', { timeout: 400_000 }, async () => {
    const session = await stack().open();
    const { hosts } = await printWhileMoving(session, {
      numbers: 1_500,
      rounds: 2,
      stateBytes: 32 * MIB,
      move: drainItsHost,
    });
    expect(hosts).toEqual([hosts[0], otherThan(hosts[0]), hosts[0]]);
    await session.delete();
  });

  test('goes on on the other host when its own dies as soon as it is stored', {
    timeout: 400_000,
  }, async () => {
    const session = await stack().open();
    const numbers = 1_000;
    const stream = await session.stream('python', { code: ticker(numbers) }, { timeoutMs: 2 * PATIENCE_MS });
    const events: SeenEvent[] = [];
    let moving: ReturnType<typeof dieAndGoOn> | undefined;
    for await (const seen of stream) {
      events.push(seen);
      if (collected(events).stdout.includes('\n50\n')) moving ??= dieAndGoOn(session);
    }
    const hosts = await moving;
    const { stdout, end } = collected(events);
    expect(end).toMatchObject({ status: 'succeeded', state_lost: false });
    expect(stdout).toBe(Array.from({ length: numbers }, (_, number) => `${number}\n`).join(''));
    expect(hosts).toEqual([expect.any(String), otherThan(hosts?.[0])]);
    const read = readReceipt(await session.receipt(end?.execution_id ?? ''));
    if (!read.ok) throw new Error(read.detail);
    const { receipt } = read.value;
    expect([...(receipt.former_hosts ?? []), receipt.host_id]).toEqual(hosts);
    await session.delete();
  });
});

/** By the operator, who then gives it back. */
async function drainItsHost(session: SessionClient): Promise<string | null> {
  const { host_id: hostId } = await session.describe();
  await order(hostId, 'drain');
  const moved = await until('the session has left it', PATIENCE_MS, async () => {
    const { state, host_id: now } = await session.describe();
    return state === 'running' && now !== hostId ? now : undefined;
  });
  await order(hostId, 'uncordon');
  return moved;
}

async function order(hostId: string | null, duty: 'drain' | 'cordon' | 'uncordon'): Promise<void> {
  const { url, operatorToken } = stack().stack;
  const headers = { authorization: `Bearer ${operatorToken}` };
  const answer = await fetch(`${url}/v1/hosts/${hostId}/${duty}`, { method: 'POST', headers });
  if (!answer.ok) throw new Error(`${duty} answered ${answer.status}`);
}

const ticker = (numbers: number): string =>
  `import time\nfor number in range(${numbers}):\n    print(number, flush=True); time.sleep(0.01)`;

const otherThan = (hostId: string | null | undefined): string =>
  hostId === second().hostId ? (stack().stack.hostId ?? '') : second().hostId;

/** Whichever host it is on: both are killed by their ids. Gives the host that it was on, and the one that it is on then. */
async function dieAndGoOn(session: SessionClient): Promise<(string | null)[]> {
  const { host_id: hostId } = await session.describe();
  expect((await act(session, 'suspend')).state).toBe('suspended');
  const pid = hostId === second().hostId ? second().pid() : stack().stack.hostAgentPid();
  if (pid === undefined) throw new Error('the host of the session does not run');
  // It is started again within a few seconds, which are no time for a session to go elsewhere on a busy machine.
  await order(hostId, 'cordon');
  process.kill(pid, 'SIGKILL');
  await until('the edge misses it', PATIENCE_MS, async () => {
    const hosts = await stack().stack.operator.hosts();
    return hosts.some(({ host_id, state }) => host_id === hostId && state !== 'connected') ? true : undefined;
  });
  await until('it is back', 120_000, async () => {
    const answer = await session.api.request('POST', `${session.path}/resume`);
    return answer.status === 200 ? true : undefined;
  });
  await order(hostId, 'uncordon');
  return [hostId, (await session.describe()).host_id];
}

async function act(session: SessionClient, name: string) {
  return (await session.api.json(SessionSchema, 'POST', `${session.path}/${name}`)).value;
}
