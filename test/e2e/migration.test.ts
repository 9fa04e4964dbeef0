/** Sessions that move to another host in the middle of a call, over the whole stack. */
import { hash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { readReceipt } from '../../shared/receipt-verify.ts';
import { printWhileMoving } from './moving.ts';
import { useSecondHost } from './second-host.ts';
import { useStack } from './stack.ts';

const MIB = 1024 * 1024;
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));
const second = useSecondHost(stack);

describe('a session that migrates', () => {
  test('goes on with its call on the other host and back, and its reader sees one stream', {
    timeout: 240_000,
  }, async () => {
    const session = await stack().open();
    const numbers = 600;
    const { hosts } = await printWhileMoving(session, { numbers, rounds: 2, stateBytes: 32 * MIB });
    const first = stack().stack.hostId ?? '';
    const known = [first, second().hostId].sort();
    expect([...new Set(hosts)].sort()).toEqual(known);
    expect(hosts[0]).toBe(hosts[2]);
    const [execution] = (await session.executions()).executions;
    const read = readReceipt(await session.receipt(execution?.execution_id ?? ''));
    if (!read.ok) throw new Error(read.detail);
    const { receipt } = read.value;
    const text = Array.from({ length: numbers }, (_, number) => `${number}\n`).join('');
    expect(receipt.stdout).toEqual({ sha256: hash('sha256', text), bytes: text.length, truncated: false });
    expect([receipt.host_id, ...(receipt.former_hosts ?? [])].sort()).toEqual([...hosts].sort());
    await session.delete();
  });
});
