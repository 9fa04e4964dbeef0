/** F22: a host and an edge of neighbouring versions agree on what both speak. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { agreedProtocol, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION } from '../../../shared/frames.ts';
import { type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';

test('two ends agree on the lower of their versions, and on none that is too old', () => {
  expect(agreedProtocol(PROTOCOL_VERSION)).toBe(PROTOCOL_VERSION);
  expect(agreedProtocol(PROTOCOL_VERSION + 1)).toBe(PROTOCOL_VERSION);
  expect(agreedProtocol(OLDEST_PROTOCOL_VERSION)).toBe(OLDEST_PROTOCOL_VERSION);
  expect(agreedProtocol(OLDEST_PROTOCOL_VERSION - 1)).toBeUndefined();
});

describe('F22 a host', () => {
  let host: LinkedHost;
  beforeEach(async () => {
    host = await linkHost();
  });
  afterEach(() => host.stop());

  const offers = () => host.edge.control.flatMap((frame) => (frame.type === 'hello' ? [frame.protocol] : []));

  test('offers its own version', () => {
    expect(offers()).toEqual([PROTOCOL_VERSION]);
  });

  test('offers the former one to an edge that does not know its own, and works with it', async () => {
    host.edge.protocol = 1;
    const before = host.edge.readyControlLinks;
    host.edge.controlSocket?.destroy();
    await host.edge.changes.until('a link by the former version', () =>
      host.edge.readyControlLinks > before ? true : undefined,
    );
    expect(offers().at(-1)).toBe(OLDEST_PROTOCOL_VERSION);
    const session = await host.attach();
    const grant = await session.grants.execute('python', { code: '1' });
    session.peer.command(grant.token, grant.payload);
    (await host.sandboxes.call(grant.claims.exec ?? '')).end();
    expect((await session.peer.finished(grant.claims.exec ?? '')).outcome.status).toBe('succeeded');
  });

  test('that is drained on its machine says so with its load, until it is not', async () => {
    await host.attach();
    const load = (what: string, isDraining: boolean) =>
      host.edge.changes.until(what, () => {
        const last = host.edge.control.findLast((frame) => frame.type === 'load');
        return last?.type === 'load' && (last.draining ?? false) === isDraining ? last : undefined;
      });
    host.agent.isDraining = true;
    expect(await load('a host that drains', true)).toMatchObject({
      sandboxes: 1,
      capacity: { sandboxes: 1 },
    });
    host.agent.isDraining = false;
    expect((await load('a host that takes some again', false)).capacity.sandboxes).toBeGreaterThan(1);
  });

  test('that its edge drains takes no new sandbox, keeps what it has, and takes some again', async () => {
    await host.attach();
    host.edge.sendControl({ type: 'drain', draining: true });
    await host.edge.changes.until('a host that is full', () =>
      host.edge.control.some((frame) => frame.type === 'load' && frame.capacity.sandboxes === 1)
        ? true
        : undefined,
    );
    const { sessionId } = await host.requestAttach();
    const refusal = await host.edge.controlFrame('refused', ({ session_id }) => session_id === sessionId);
    expect(refusal.code).toBe('host_full');
    expect(host.sandboxes.started.map(({ isDestroyed }) => isDestroyed)).toEqual([false]);
    host.edge.sendControl({ type: 'drain', draining: false });
    await host.attach();
  });
});
