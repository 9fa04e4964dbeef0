/** The resource attacks whose numbers are large, through the whole stack. The ids are those of the list of resource attacks. */
import { expect, test } from 'vitest';
import type { Execution } from '../../shared/execution.ts';
import { readReceipt } from '../../shared/receipt-verify.ts';
import { UsageReportSchema } from '../../shared/tenant.ts';
import { expectSameHoldings } from '../e2e/churn.ts';
import type { SessionClient } from '../e2e/client.ts';
import { useStack } from '../e2e/stack.ts';
import { until } from '../e2e/until.ts';
import { PATIENCE_MS } from '../patience.ts';

const MIB = 1024 * 1024;
const ORPHANS = 10_000;
/** Each of the parents leaves so many at once: below the number of processes that a session may have. */
const ORPHANS_AT_ONCE = 100;
const DEPTH = 4_096;
const CRASHES = 100;
const CRASHES_AT_ONCE = 2;
const CALL_TIMEOUT_MS = 900_000;
const LONG_MS = 1_800_000;

/** Without a pool: what is made ahead comes and goes by itself. */
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));

async function lives(session: SessionClient): Promise<void> {
  expect((await session.sh('echo $(echo alive)')).stdout).toBe('alive\n');
  expect((await session.py('6 * 7')).value).toBe('42');
}

function signedCpuMs({ receipt }: Execution): number {
  if (receipt === null) throw new Error('a call that ended without a receipt');
  const read = readReceipt(receipt);
  if (!read.ok) throw new Error(read.detail);
  return read.value.receipt.usage.cpu_ms;
}

test(`R5 ${ORPHANS} processes that nobody waits for are reaped`, { timeout: LONG_MS }, async () => {
  const session = await stack().open();
  const orphans = [
    'import os',
    'made = 0',
    `while made < ${ORPHANS}:`,
    '  parent = os.fork()',
    '  if parent == 0:',
    `    for _ in range(${ORPHANS_AT_ONCE}):`,
    '      if os.fork() == 0: os._exit(0)',
    '    os._exit(0)',
    '  _, status = os.waitpid(parent, 0)',
    '  assert status == 0',
    `  made += ${ORPHANS_AT_ONCE}`,
    'made',
  ].join('\n');
  const made = await session.py(orphans, { timeoutMs: CALL_TIMEOUT_MS });
  expect(made, made.stderr).toMatchObject({ status: 'succeeded', value: String(ORPHANS), state_lost: false });
  await until('all of them are reaped', PATIENCE_MS, async () => {
    const left = await session.sh('cat /proc/[0-9]*/stat 2>/dev/null | grep -c ") Z "');
    return left.stdout === '0\n' ? true : undefined;
  });
  await lives(session);
  await session.delete();
});

test(`R23 trees of ${DEPTH} folders with names of 255 bytes can be deleted, and go with their session`, {
  timeout: LONG_MS,
}, async () => {
  const session = await stack().open();
  const dig = [
    'import os',
    'def dig(top):',
    '  os.makedirs(top); os.chdir(top)',
    `  for _ in range(${DEPTH}):`,
    '    os.mkdir("d" * 255); os.chdir("d" * 255)',
    '  os.chdir("/workspace")',
    'dig("/workspace/deep"); dig("/workspace/kept")',
  ].join('\n');
  const dug = await session.py(dig, { timeoutMs: CALL_TIMEOUT_MS });
  expect(dug, dug.stderr).toMatchObject({ status: 'succeeded' });
  const deleted = await session.file(
    { operation: 'delete', path: '/workspace/deep', recursive: true },
    { timeoutMs: CALL_TIMEOUT_MS },
  );
  expect(deleted.status).toBe('succeeded');
  expect((await session.sh('ls /workspace')).stdout).toBe('kept\n');
  await lives(session);
  await session.delete();
});

test(`R28 ${CRASHES} sandboxes that die one after the other leave the host as it was, and are paid for`, {
  timeout: LONG_MS,
}, async () => {
  const { api } = stack();
  const agent = stack().hostAgentPid();
  const used = async (): Promise<{ executions: number; cpuMs: number }> => {
    const { days } = (await api.json(UsageReportSchema, 'GET', '/v1/usage')).value;
    const cpuMs = 1_000 * days.reduce((sum, day) => sum + day.cpu_seconds, 0);
    return { executions: days.reduce((sum, day) => sum + day.executions, 0), cpuMs };
  };
  const victim = await stack().open();
  await victim.py('kept = 1');
  const before = await used();
  let signedMs = 0;
  let left = CRASHES;
  const crashInTurn = async (): Promise<void> => {
    const session = await stack().open({ limits: { memory_bytes: 96 * MIB } });
    while (left > 0) {
      left -= 1;
      const died = await session.py('hog = bytearray(b"x" * (1 << 28))', { timeoutMs: CALL_TIMEOUT_MS });
      expect(died).toMatchObject({ status: 'oom', state_lost: true });
      signedMs += signedCpuMs(died);
      expect((await victim.py('kept += 1; kept > 1')).value).toBe('True');
    }
    await session.delete();
  };
  await expectSameHoldings(stack(), async () => {
    await Promise.all(Array.from({ length: CRASHES_AT_ONCE }, crashInTurn));
  });
  expect(stack().hostAgentPid()).toBe(agent);
  expect((await victim.py('kept')).value).toBe(String(CRASHES + 1));
  expect(signedMs).toBeGreaterThan(0);
  await until('the tenant has paid', PATIENCE_MS, async () => {
    const now = await used();
    const isPaid = now.executions - before.executions > CRASHES && now.cpuMs - before.cpuMs >= signedMs;
    return isPaid ? true : undefined;
  });
  await victim.delete();
});
