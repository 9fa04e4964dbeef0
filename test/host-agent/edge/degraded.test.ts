/** F27: the disk under the state folder is full while a call runs. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';
import { canMount, SmallDisk } from '../../fixtures/edge-double/small-disk.ts';

describe.skipIf(!canMount)('F27 a host whose disk is full', () => {
  let disk: SmallDisk;
  let host: LinkedHost;
  beforeEach(async () => {
    disk = new SmallDisk();
    host = await linkHost({ parentDir: disk.path });
  });
  afterEach(async () => {
    await host.stop();
    disk.remove();
  });

  test('refuses new grants, lets what runs finish, and takes work again when there is room', async () => {
    const { grants, peer } = await host.attach();
    const running = await grants.execute('python', { code: '1' });
    peer.command(running.token, running.payload);
    const call = await host.sandboxes.call(running.claims.exec ?? '');
    disk.fill();
    await call.write('stdout', 'x'.repeat(50_000));
    call.end();
    const { outcome } = await peer.finished(running.claims.exec ?? '');
    expect(outcome.status).toBe('succeeded');
    await host.edge.controlFrame('load', ({ degraded }) => degraded);

    const refusedGrant = await grants.execute('python', { code: '2' });
    peer.command(refusedGrant.token, refusedGrant.payload);
    const refusal = await peer.refusal(refusedGrant.claims.jti);
    expect(refusal).toMatchObject({ code: 'host_degraded', execution_id: refusedGrant.claims.exec });
    const other = await host.requestAttach();
    const attachRefusal = await host.edge.controlFrame(
      'refused',
      ({ session_id }) => session_id === other.sessionId,
    );
    expect(attachRefusal.code).toBe('host_degraded');

    const reports = host.edge.control.length;
    disk.empty();
    await host.edge.changes.until('a report of recovery', () =>
      host.edge.control.slice(reports).find((frame) => frame.type === 'load' && !frame.degraded),
    );
    const grant = await grants.execute('python', { code: '3' });
    peer.command(grant.token, grant.payload);
    (await host.sandboxes.call(grant.claims.exec ?? '')).end();
    await peer.finished(grant.claims.exec ?? '');
    expect(host.sandboxes.calls.map(({ call: { executionId } }) => executionId)).toEqual([
      running.claims.exec,
      grant.claims.exec,
    ]);
  });
});
