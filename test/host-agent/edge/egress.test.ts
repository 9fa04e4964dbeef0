/** The way out of a session in its grants: what was granted is what the sandbox gets, and nothing else runs in it. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { egressClaim, type Network } from '../../../shared/network.ts';
import { Grants, newSessionIdentity } from '../../fixtures/edge-double/grants.ts';
import { type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';
import { SCRIPTED_IMAGE } from '../../fixtures/edge-double/scripted-sandboxes.ts';

const network: Network = {
  allow: ['pypi.org'],
  inject: [{ host: 'pypi.org', header: 'x-key', secret: 'sk-0123456789', tls: true }],
};

let host: LinkedHost;
beforeEach(async () => {
  host = await linkHost();
  host.sandboxes.onCall = (call) => call.end();
});
afterEach(() => host.stop());

function newSession() {
  const sessionId = newSessionIdentity();
  const identity = {
    hostId: host.agent.hostId,
    tenant: 'tenant-a',
    sessionId,
    epoch: 1,
    image: SCRIPTED_IMAGE,
  };
  return {
    sessionId,
    grants: new Grants(host.edge.keys, identity),
    peer: host.edge.session({ sessionId, tenant: 'tenant-a', epoch: 1 }),
  };
}

describe('the network of a session', () => {
  test('comes to its sandbox as it was granted, and calls under the same grant run', async () => {
    const { grants, peer, sessionId } = newSession();
    const egress = await egressClaim(network);
    const attach = await grants.attach({ network }, { egress });
    host.edge.commandControl(attach.token, attach.payload);
    await peer.frame('ready');
    expect(host.sandboxes.started[0]?.config.network).toEqual({ sessionId, rules: network });
    const call = await grants.execute('python', { code: '1' }, { egress });
    peer.command(call.token, call.payload);
    expect((await peer.finished(call.claims.exec ?? '')).outcome.status).toBe('succeeded');
  });

  test('is none where the grant has none', async () => {
    const { grants, peer } = newSession();
    const attach = await grants.attach();
    host.edge.commandControl(attach.token, attach.payload);
    await peer.frame('ready');
    expect(host.sandboxes.started[0]?.config.network).toBeNull();
  });

  test.each([
    ['wider than its grant', network, 'none'],
    ['another than its grant', network, 'f'.repeat(64)],
    ['missing', null, 'f'.repeat(64)],
  ])('that is %s is refused', async (_, granted, egress) => {
    const { grants, sessionId } = newSession();
    const attach = await grants.attach({ network: granted }, { egress });
    host.edge.commandControl(attach.token, attach.payload);
    const refusal = await host.edge.controlFrame('refused', ({ session_id }) => session_id === sessionId);
    expect(refusal.code).toBe('egress_refused');
    expect(host.sandboxes.started).toHaveLength(0);
  });

  test('that breaks its own rules is refused', async () => {
    const { grants, sessionId } = newSession();
    const broken = { allow: ['*.com'], inject: [] };
    const attach = await grants.attach({ network: broken }, { egress: await egressClaim(broken) });
    host.edge.commandControl(attach.token, attach.payload);
    const refusal = await host.edge.controlFrame('refused', ({ session_id }) => session_id === sessionId);
    expect(refusal.code).toBe('invalid_request');
  });

  test('of a call must be that of its sandbox', async () => {
    const { grants, peer } = newSession();
    const attach = await grants.attach();
    host.edge.commandControl(attach.token, attach.payload);
    await peer.frame('ready');
    const call = await grants.execute('python', { code: '1' }, { egress: await egressClaim(network) });
    peer.command(call.token, call.payload);
    expect((await peer.refusal(call.claims.jti)).code).toBe('egress_refused');
    expect(host.sandboxes.calls).toHaveLength(0);
  });
});
