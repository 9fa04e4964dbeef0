/** A program with everything that cannot be replayed waits while all that it was on goes away, and ends right on another host. */
import { expect, test } from 'vitest';
import { openCgroups } from '../../host-agent/cgroup/open.ts';
import { cgroupParent } from '../../scripts/development/host-agent-child.ts';
import { type Program, ProgramSchema } from '../../shared/code-mode.ts';
import { OperatorHostSchema } from '../../shared/host-api.ts';
import { readReceipt, verifySessionReceipts } from '../../shared/receipt-verify.ts';
import { RegisteredToolSchema } from '../../shared/registered-tool.ts';
import { ApiClient, type SessionClient } from './client.ts';
import { holdingProgram } from './holding-program.ts';
import { useSecondHost } from './second-host.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const WAIT_MS = 120_000;

let firstStateDir = '';
const stack = useStack((folder) => {
  firstStateDir = folder;
  return { SANDGATE_WAITING_FREEZE_MS: '300', SANDGATE_POOL_CEILING: '0' };
});
const second = useSecondHost(stack);

/** It also has an open file. */
const PROGRAM = holdingProgram({
  question: 'n=n, big=2**53 - 1 - n',
  begin: 'log = open("log", "w+"); log.write("before\\n"); log.flush()\n',
  end: 'log.write("after\\n"); log.seek(0)\n',
  value: ', log.read()',
});

test('it waits frozen, is suspended, outlives two gateways and its host, and makes its five calls once', {
  timeout: 400_000,
}, async () => {
  await stack().api.json(RegisteredToolSchema, 'PUT', '/v1/tools/people.ask', {
    body: { description: 'Asks a person', kind: 'client', input_schema: { type: 'object' } },
  });
  const session = await stack().open({ suspend_after_idle_s: 10 });
  const body = { language: 'python', code: PROGRAM };
  const waiting = (await session.api.json(ProgramSchema, 'POST', `${session.path}/programs`, { body })).value;
  expect(waiting).toMatchObject({ status: 'waiting' });
  expect(waiting.pending.map(({ arguments: { n, big } }) => [n, big])).toEqual(
    [0, 1, 2, 3, 4].map((n) => [n, Number.MAX_SAFE_INTEGER - n]),
  );

  const { sandbox_id: sandboxId, host_id: hostId } = await session.describe();
  const isFirst = hostId === stack().stack.hostId;
  const cgroups = await openCgroups(`/${cgroupParent(isFirst ? firstStateDir : second().stateDir)}`);
  await until('its sandbox is frozen', WAIT_MS, () => cgroups.isFrozen(sandboxId ?? '') || undefined);
  await stack().restartEdge();
  expect(await now(session, waiting)).toMatchObject({ status: 'waiting', pending: waiting.pending });

  await until('it is suspended by itself', WAIT_MS, async () =>
    (await session.describe()).state === 'suspended' ? true : undefined,
  );
  await stack().restartEdge();
  expect(await now(session, waiting)).toMatchObject({ status: 'waiting', pending: waiting.pending });

  const operator = new ApiClient(stack().stack.url, stack().stack.operatorToken);
  await operator.json(OperatorHostSchema, 'POST', `/v1/hosts/${hostId}/cordon`);
  const pid = isFirst ? stack().hostAgentPid() : second().pid();
  if (pid === undefined) throw new Error('the host of the session does not run');
  const pidNow = () => (isFirst ? stack().stack.hostAgentPid() : second().pid());
  process.kill(pid, 'SIGKILL');

  const [first, ...others] = waiting.pending
    .map(({ id, arguments: { n } }) => ({ id, structured: Number(n) * Number(n) }))
    .toReversed();
  const path = `${session.path}/programs/${waiting.program_id}/tool_results`;
  await session.api.json(ProgramSchema, 'POST', path, { body: { results: [first], detach: true } });
  // Another connection, of which the first knows nothing.
  const later = new ApiClient(stack().stack.url, stack().api.token);
  const ended = (await later.json(ProgramSchema, 'POST', path, { body: { results: others } })).value;
  expect(ended.execution.error).toBeNull();
  expect(ended).toMatchObject({
    status: 'succeeded',
    pending: [],
    used: { calls: 5 },
    execution: {
      stdout: 'before\nafter\n',
      state_lost: false,
      value: `([0, 1, 4, 9, 16], 2, ['begun', 'freed'], 100000000, '9031c166', 'before\\nafter\\n')`,
    },
  });
  expect((await session.describe()).host_id).not.toBe(hostId);
  expect((await session.py('len(held), next(numbers)')).value).toBe('(100000000, 3)');

  const { receipts, edge_receipts: edgeReceipts, keys } = await session.receipts();
  const given = { sessionId: session.id, receipts, edgeReceipts, more: false };
  const verified = await verifySessionReceipts(given, keys);
  if (!verified.ok) throw new Error(`${verified.code}: ${verified.detail}`);
  expect(verified.edgeReceipts.map(({ parent, status }) => [parent?.call, status])).toEqual(
    [5, 4, 3, 2, 1].map((call) => [call, 'succeeded']),
  );
  const own = readReceipt(await session.receipt(waiting.program_id));
  expect(own).toMatchObject({ ok: true, value: { receipt: { former_hosts: [hostId] } } });
  await session.delete();
  await until('the agent that died is back, and has put away what it left', WAIT_MS, async () => {
    const known = await stack().stack.operator.hosts();
    const isBack = known.some((host) => host.host_id === hostId && host.state === 'connected');
    return isBack && pidNow() !== undefined && pidNow() !== pid ? true : undefined;
  });
  await operator.json(OperatorHostSchema, 'POST', `/v1/hosts/${hostId}/uncordon`);
});

async function now(session: SessionClient, { program_id }: Program): Promise<Program> {
  return (await session.api.json(ProgramSchema, 'GET', `${session.path}/programs/${program_id}`)).value;
}
