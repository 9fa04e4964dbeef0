/** F27: the file system under the state folder becomes read-only while a call runs, as it does when its device fails. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { readReceipt } from '../../../shared/receipt-verify.ts';
import { FailingDisk } from '../../fixtures/edge-double/failing-disk.ts';
import { type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';
import { canMount } from '../../fixtures/edge-double/small-disk.ts';

describe.skipIf(!canMount)('F27 a host whose disk has become read-only', () => {
  let disk: FailingDisk;
  let host: LinkedHost;
  beforeEach(async () => {
    disk = new FailingDisk();
    host = await linkHost({ parentDir: disk.path });
  });
  afterEach(async () => {
    await host.stop();
    disk.remove();
  });

  test('lets what runs finish, starts nothing that is not in its journal, and takes up from there when it can write', async () => {
    const { grants, peer, sessionId } = await host.attach();
    const running = await grants.execute('python', { code: '1' });
    peer.command(running.token, running.payload);
    const call = await host.sandboxes.call(running.claims.exec ?? '');
    disk.makeReadOnly();

    // Of another tool: one of the same would wait for the first.
    const refused = await grants.execute('shell', { command: 'echo 2' });
    peer.command(refused.token, refused.payload);
    expect(await peer.refusal(refused.claims.jti)).toMatchObject({ code: 'host_degraded' });
    await host.edge.controlFrame('load', ({ degraded }) => degraded);
    const other = await host.requestAttach();
    const isOther = ({ session_id }: { session_id: string }): boolean => session_id === other.sessionId;
    expect((await host.edge.controlFrame('refused', isOther)).code).toBe('host_degraded');

    await call.write('stdout', 'to the end');
    call.end();
    const { outcome, receipt } = await peer.finished(running.claims.exec ?? '');
    expect(outcome.status).toBe('succeeded');
    expect(readReceipt(receipt)).toMatchObject({ ok: true, value: { receipt: { status: 'succeeded' } } });
    const again = await grants.execute('python', { code: '3' });
    peer.command(again.token, again.payload);
    expect(await peer.refusal(again.claims.jti)).toMatchObject({ code: 'host_degraded' });
    expect(host.sandboxes.calls.map(({ call: { executionId } }) => executionId)).toEqual([
      running.claims.exec,
    ]);

    await host.stopAgent();
    disk.repair();
    const sandboxes = await host.restart();
    await host.agent.ready;
    expect(host.agent.isDegraded).toBe(false);
    // What the disk never took is no start, so the same grant is as good as new; what it did take never runs twice.
    const next = await host.attach();
    const fresh = await next.grants.execute('python', { code: '4' });
    next.peer.command(fresh.token, fresh.payload);
    (await sandboxes.call(fresh.claims.exec ?? '')).end();
    expect((await next.peer.finished(fresh.claims.exec ?? '')).outcome.status).toBe('succeeded');
    expect(sandboxes.calls).toHaveLength(1);
    expect(sessionId).not.toBe(next.sessionId);
  });
});
