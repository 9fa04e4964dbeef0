/** Sessions that move to another host in the middle of a call, over the whole stack. */
import { describe, expect, test } from 'vitest';
import { SessionSchema } from '../../shared/session.ts';
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
    timeout: 240_000,
  }, async () => {
    const session = await stack().open();
    const { hosts } = await printWhileMoving(session, { numbers: 600, rounds: 2, stateBytes: 32 * MIB });
    const first = stack().stack.hostId ?? '';
    const known = [first, second().hostId].toSorted(byName);
    expect([...new Set(hosts)].toSorted(byName)).toEqual(known);
    expect(hosts[0]).toBe(hosts[2]);
    await session.delete();
  });

  test('goes on elsewhere when its host dies as soon as it is stored', { timeout: 240_000 }, async () => {
    const session = await stack().open();
    const numbers = 300;
    const stream = await session.stream('python', { code: ticker(numbers) }, { timeoutMs: 30_000 });
    const events: SeenEvent[] = [];
    let moving: Promise<void> | undefined;
    for await (const seen of stream) {
      events.push(seen);
      if (collected(events).stdout.includes('\n50\n')) moving ??= dieAndGoOn(session);
    }
    await moving;
    const { stdout, end } = collected(events);
    expect(end).toMatchObject({ status: 'succeeded', state_lost: false });
    expect(stdout).toBe(Array.from({ length: numbers }, (_, number) => `${number}\n`).join(''));
    await session.delete();
  });
});

const ticker = (numbers: number): string =>
  `import time\nfor number in range(${numbers}):\n    print(number, flush=True); time.sleep(0.01)`;

/** Whichever host it is on: both are killed by their ids, and come back as they were left. */
async function dieAndGoOn(session: SessionClient): Promise<void> {
  const { host_id: hostId } = await session.describe();
  expect((await act(session, 'suspend')).state).toBe('suspended');
  const pidOfHost = (): number | undefined =>
    hostId === stack().stack.hostId ? stack().stack.hostAgentPid() : second().pid();
  const pid = pidOfHost();
  if (pid === undefined) throw new Error('the host of the session does not run');
  process.kill(pid, 'SIGKILL');
  // What the edge sent to it in the moment of its death would be waited for as long as a restore may take.
  await until('it is started again', 60_000, () => {
    const next = pidOfHost();
    return next === undefined || next === pid ? undefined : next;
  });
  await until('it is back', 120_000, async () => {
    const answer = await session.api.request('POST', `${session.path}/resume`);
    return answer.status === 200 ? true : undefined;
  });
}

async function act(session: SessionClient, name: string) {
  return (await session.api.json(SessionSchema, 'POST', `${session.path}/${name}`)).value;
}
