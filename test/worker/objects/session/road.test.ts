import { afterEach, describe, expect, test } from 'vitest';
import { verifyChain, verifyReceipt } from '../../../../shared/receipt-verify.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import { call, caller, openSession, WHOLE_CHAIN } from '../../harness/sessions.ts';

let host: HostDouble | undefined;
afterEach(() => host?.close());

describe('a session', () => {
  test('is made on a host, runs a call, and gives a receipt that both signed', async () => {
    host = await connectFakeHost();
    const session = await openSession(host);
    const described = await session.stub.describe(caller);
    expect(described).toMatchObject({ ok: true, value: { state: 'running', sandbox_id: 'double-1' } });

    const executed = await session.stub.execute(call('hello'));
    expect(executed).toMatchObject({
      ok: true,
      value: { status: 'succeeded', stdout: 'hello', stdout_bytes: 5, truncated: false, state_lost: false },
    });
    if (!executed.ok) throw new Error(executed.detail);
    const exported = await session.stub.receipts(caller, WHOLE_CHAIN);
    if (!exported.ok) throw new Error(exported.detail);
    const { keys, receipts } = exported.value;
    expect(await verifyReceipt(executed.value.receipt, keys)).toMatchObject({ ok: true });
    expect(await verifyChain(receipts, keys, session.id)).toMatchObject({ ok: true });
    expect(host.failures).toEqual([]);
  });
});
