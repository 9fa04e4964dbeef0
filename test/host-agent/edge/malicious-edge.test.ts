/** What a host refuses of an edge that is not what it should be. Every row has its innocent twin, which runs. */
import { hash } from 'node:crypto';
import { SignJWT } from 'jose';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { utf8 } from '../../../shared/encoding.ts';
import type { GrantClaims } from '../../../shared/grant.ts';
import { newId } from '../../../shared/ids.ts';
import { datedKey, type EdgeKey, newEdgeKey } from '../../fixtures/edge-double/edge-keys.ts';
import { type Grant, Grants, newSessionIdentity } from '../../fixtures/edge-double/grants.ts';
import {
  type AttachedSession,
  type LinkedHost,
  linkHost,
  TEST_CAPS,
} from '../../fixtures/edge-double/host.ts';
import { journalHolds } from '../../fixtures/edge-double/journal-on-disk.ts';
import { SCRIPTED_IMAGE } from '../../fixtures/edge-double/scripted-sandboxes.ts';

let host: LinkedHost;
let session: AttachedSession;
beforeEach(async () => {
  host = await linkHost();
  host.sandboxes.onCall = (call) => call.end();
  session = await host.attach();
});
afterEach(() => host.stop());

const ARGUMENTS = { code: '1' };
const nowS = (): number => Math.floor(Date.now() / 1000);

function send(grant: Pick<Grant, 'token' | 'payload'>): void {
  session.peer.command(grant.token, grant.payload);
}

function execute(claims: Partial<GrantClaims> = {}, signer?: EdgeKey): Promise<Grant> {
  return session.grants.execute('python', ARGUMENTS, claims, signer);
}

/** Nothing was started for it, and a grant without fault still runs afterwards. */
async function expectRefused(grant: Grant, code: string): Promise<void> {
  send(grant);
  const refusal = await session.peer.refusal(grant.claims.jti);
  expect(refusal.code).toBe(code);
  expect(host.sandboxes.calls).toHaveLength(0);
  await expectRuns(await execute());
  expect(host.sandboxes.calls).toHaveLength(1);
}

async function expectRuns(grant: Grant): Promise<void> {
  send(grant);
  const { outcome } = await session.peer.finished(grant.claims.exec ?? '');
  expect(outcome.status).toBe('succeeded');
}

async function signedWith(header: object, key: EdgeKey, changes: Partial<GrantClaims> = {}): Promise<Grant> {
  const { claims, payload } = await execute(changes);
  const token = await new SignJWT({ ...claims })
    .setProtectedHeader({ alg: 'Ed25519', typ: 'exec-grant+jwt', kid: key.keyId, ...header })
    .sign(key.privateKey);
  return { token, claims, payload };
}

describe('a grant on the link of a session', () => {
  test('A38 must be there', async () => {
    session.peer.command('', utf8(JSON.stringify(ARGUMENTS)));
    const refusal = await session.peer.frame('refused');
    expect(refusal).toMatchObject({ code: 'no_grant', execution_id: null, grant_jti: null });
    expect(host.sandboxes.calls).toHaveLength(0);
    await expectRuns(await execute());
  });

  test('A39 must not be expired', async () => {
    await expectRefused(await execute({ iat: nowS() - 61, exp: nowS() - 1 }), 'grant_expired');
  });

  test('A39 must not be of the future', async () => {
    await expectRefused(await execute({ iat: nowS() + 45, exp: nowS() + 100 }), 'grant_expired');
  });

  test('A39 must not live longer than a minute', async () => {
    await expectRefused(await execute({ exp: nowS() + 3600 }), 'grant_invalid');
  });

  test('A40 starts one execution when it comes a hundred times at once', async () => {
    const grant = await execute();
    for (let count = 0; count < 100; count += 1) send(grant);
    await expectRuns(grant);
    await expectRuns(await execute());
    expect(host.sandboxes.calls.map(({ call }) => call.executionId)).toHaveLength(2);
  });

  test('A40 is answered with the stored receipt when it comes again after the end', async () => {
    const grant = await execute();
    await expectRuns(grant);
    send(grant);
    await session.peer.changes.until('a second end', () => session.peer.ofType('finished')[1]);
    const [first, second] = session.peer.ofType('finished').map(({ header }) => header);
    expect(second).toMatchObject({ type: 'finished', execution_id: grant.claims.exec });
    expect({ ...second, seq: 0 }).toEqual({ ...first, seq: 0 });
    expect(host.sandboxes.calls).toHaveLength(1);
  });

  test('A40 is answered with the stored receipt even when it has expired', async () => {
    const grant = await execute();
    await expectRuns(grant);
    const expired = await session.grants.sign(
      { ...grant.claims, iat: nowS() - 70, exp: nowS() - 10 },
      grant.payload,
    );
    send(expired);
    await session.peer.changes.until('a second end', () => session.peer.ofType('finished')[1]);
    expect(host.sandboxes.calls).toHaveLength(1);
  });

  test('A40 cannot lend its jti to another execution', async () => {
    const grant = await execute();
    await expectRuns(grant);
    const other = await execute({ jti: grant.claims.jti });
    send(other);
    const refusal = await session.peer.refusal(grant.claims.jti);
    expect(refusal.code).toBe('grant_replayed');
    expect(host.sandboxes.calls).toHaveLength(1);
  });

  test('A40 cannot start an execution again under a new jti', async () => {
    const grant = await execute();
    await expectRuns(grant);
    send(await execute({ exec: grant.claims.exec }));
    await session.peer.changes.until('a second end', () => session.peer.ofType('finished')[1]);
    await expectRuns(await execute());
    expect(host.sandboxes.calls).toHaveLength(2);
  });

  test('A41 may say what its arguments are held to, and then they are', async () => {
    const code = { argument: '/code', required: true };
    await expectRefused(await execute({ constraints: [{ ...code, one_of: ['2'] }] }), 'policy_refused');
    await expectRuns(await execute({ constraints: [{ ...code, one_of: ['1'] }] }));
  });

  test('A41 covers every byte of the arguments', async () => {
    const grant = await execute();
    const payload = Uint8Array.from(grant.payload);
    payload[payload.length - 3] = (payload[payload.length - 3] ?? 0) ^ 1;
    await expectRefused({ ...grant, payload }, 'args_mismatch');
  });

  test('A41 covers the end of the arguments', async () => {
    const grant = await execute();
    await expectRefused({ ...grant, payload: utf8(`${JSON.stringify(ARGUMENTS)} `) }, 'args_mismatch');
  });

  test('A42 names a tool that the host has', async () => {
    await expectRefused(await execute({ tool: 'perl' }), 'tool_refused');
  });

  test('A42 names the version that the host has', async () => {
    await expectRefused(await execute({ tool_version: '2' }), 'tool_refused');
  });

  test('A42 has arguments of its tool', async () => {
    await expectRefused(await execute({ tool: 'shell' }), 'invalid_request');
  });

  test('A43 is not of a lower epoch', async () => {
    await expectSecondEpoch(1);
  });

  test('A43 is not of a higher epoch than its link', async () => {
    await expectRefused(await execute({ epoch: 2 }), 'fenced');
  });

  test('A43 is not numbered below one seen before', async () => {
    const grant = await execute({ seq: 10 });
    await expectRuns(grant);
    const lower = await execute({ seq: 9 });
    send(lower);
    expect((await session.peer.refusal(lower.claims.jti)).code).toBe('fenced');
    await expectRuns(await execute({ seq: 11 }));
    expect(host.sandboxes.calls).toHaveLength(2);
  });

  test('A44 is for this host', async () => {
    await expectRefused(await execute({ aud: `host:${newId('hst')}` }), 'wrong_host');
  });

  test('A44 is of this edge', async () => {
    await expectRefused(await execute({ iss: 'https://other.example' }), 'grant_invalid');
  });

  test('A45 stays within the limits of its sandbox', async () => {
    const { claims } = await execute();
    const limits = { ...claims.limits, memory_bytes: claims.limits.memory_bytes + 1 };
    await expectRefused(await execute({ limits }), 'limits_exceeded');
  });

  test('A46 is for the image of its sandbox', async () => {
    await expectRefused(await execute({ image: `sha256:${'cd'.repeat(32)}` }), 'image_refused');
  });

  test('A46 names an image by digest, not by tag', async () => {
    await expectRefused(await execute({ image: 'python:latest' }), 'grant_invalid');
  });

  test('A47 is not signed by a key that nobody knows', async () => {
    await expectRefused(await execute({}, await newEdgeKey()), 'grant_invalid');
  });

  test('A47 is not signed by a stranger under the name of the right key', async () => {
    const stranger = await newEdgeKey();
    await expectRefused(
      await execute({}, { ...stranger, keyId: host.edge.keys.grant.keyId }),
      'grant_invalid',
    );
  });

  test('A47 is not signed by the key that counter-signs receipts', async () => {
    await expectRefused(await execute({}, host.edge.keys.receipt), 'grant_invalid');
  });

  test('A47 is not signed by the root key', async () => {
    await expectRefused(await execute({}, host.edge.keys.root), 'grant_invalid');
  });

  test.each([
    ['expired', { not_after: 1 }],
    ['not yet valid', { not_before: 4_102_444_800 }],
    ['revoked', { revoked_at: 1 }],
  ])('A47 is not signed by a key that is %s', async (_, dates) => {
    const old = await newEdgeKey();
    const twin = await newEdgeKey();
    host.edge.keys.otherGrantKeys = [datedKey(old, dates), datedKey(twin)];
    host.edge.keys.version = 2;
    host.edge.sendControl({ type: 'key_set', key_set: await host.edge.keys.signedKeySet() });
    await expectRunsOnceKnown(twin);
    const grant = await execute({}, old);
    send(grant);
    expect((await session.peer.refusal(grant.claims.jti)).code).toBe('grant_invalid');
  });

  test('A47 has the type of a grant', async () => {
    await expectRefused(await signedWith({ typ: 'at+jwt' }, host.edge.keys.grant), 'grant_invalid');
  });

  test('A47 has the algorithm of grants', async () => {
    await expectRefused(await signedWith({ alg: 'EdDSA' }, host.edge.keys.grant), 'grant_invalid');
  });

  test('A47 has a signature at all', async () => {
    const { token, claims, payload } = await execute();
    const none = Buffer.from(JSON.stringify({ alg: 'none', typ: 'exec-grant+jwt', kid: 'x' }));
    const [, body] = token.split('.');
    await expectRefused(
      { token: `${none.toString('base64url')}.${body}.`, claims, payload },
      'grant_invalid',
    );
  });

  test('A48 is not of another tenant', async () => {
    await expectRefused(await execute({ tenant: 'tenant-b' }), 'wrong_session');
  });

  test('A48 is not of another session', async () => {
    await expectRefused(await execute({ sid: newSessionIdentity() }), 'wrong_session');
  });

  test('does not attach on the link of a session', async () => {
    const grant = await session.grants.attach();
    await expectRefused(grant, 'grant_invalid');
    expect(host.sandboxes.started).toHaveLength(1);
  });

  test('of an interrupt or of stdin needs an execution that runs', async () => {
    const interrupt = await session.grants.interrupt(newId('exe'));
    await expectRefused(interrupt, 'execution_not_running');
    const refusal = await session.peer.refusal(interrupt.claims.jti);
    expect(refusal.execution_id).toBeNull();
  });
});

async function expectRunsOnceKnown(signer: EdgeKey): Promise<void> {
  // The key set and the command travel on different links; until the key is known its grants are refused.
  const isTaken = async (): Promise<boolean> => {
    const grant = await execute({}, signer);
    send(grant);
    return session.peer.changes.until('an answer', () => {
      const refused = session.peer
        .ofType('refused')
        .some(({ header }) => header.grant_jti === grant.claims.jti);
      const ended = session.peer
        .ofType('finished')
        .some(({ header }) => header.execution_id === grant.claims.exec);
      return refused || ended ? ended : undefined;
    });
  };
  await expect.poll(isTaken).toBe(true);
}

/** The session moves on to epoch 2 on this host; grants of `epoch` are refused on the new link. */
async function expectSecondEpoch(epoch: number): Promise<void> {
  const { sessionId, tenant } = session;
  const next = { hostId: host.agent.hostId, tenant, sessionId, epoch: 2, image: SCRIPTED_IMAGE };
  const attach = await session.grants.attach({}, { epoch: 2 });
  host.edge.commandControl(attach.token, attach.payload);
  const peer = host.edge.session(next);
  await peer.frame('ready');
  expect(host.sandboxes.started[0]?.isDestroyed).toBe(true);
  const old = await execute({ epoch });
  peer.command(old.token, old.payload);
  expect((await peer.refusal(old.claims.jti)).code).toBe('fenced');
  expect(host.sandboxes.calls).toHaveLength(0);
  const twin = await execute({ epoch: 2 });
  peer.command(twin.token, twin.payload);
  expect((await peer.finished(twin.claims.exec ?? '')).outcome.status).toBe('succeeded');
}

describe('a grant on the control link', () => {
  function newSession(tenant = 'tenant-a'): { grants: Grants; sessionId: string; tenant: string } {
    const sessionId = newSessionIdentity();
    const identity = { hostId: host.agent.hostId, tenant, sessionId, epoch: 1, image: SCRIPTED_IMAGE };
    return { grants: new Grants(host.edge.keys, identity), sessionId, tenant };
  }

  async function expectAttachRefused(claims: Partial<GrantClaims>, code: string): Promise<void> {
    const { grants, sessionId, tenant } = newSession();
    const grant = await grants.attach({}, claims);
    host.edge.commandControl(grant.token, grant.payload);
    const refusal = await host.edge.controlFrame('refused', ({ session_id }) => session_id === sessionId);
    expect(refusal).toMatchObject({ code, tenant });
    expect(host.sandboxes.started).toHaveLength(1);
    const twin = await grants.attach({}, { epoch: 2 });
    host.edge.commandControl(twin.token, twin.payload);
    await host.edge.session({ sessionId, tenant, epoch: 2 }).frame('ready');
  }

  test('A39 must not be expired', () =>
    expectAttachRefused({ iat: nowS() - 61, exp: nowS() - 1 }, 'grant_expired'));

  test('A44 is for this host', () => expectAttachRefused({ aud: `host:${newId('hst')}` }, 'wrong_host'));

  test.each(['cpus', 'memory_bytes', 'processes', 'workspace_bytes', 'tmp_bytes'] as const)(
    'A45 asks for no more %s than the host gives',
    async (name) => {
      const limits = { ...TEST_CAPS, timeout_ms: 1000 };
      await expectAttachRefused({ limits: { ...limits, [name]: TEST_CAPS[name] + 1 } }, 'limits_exceeded');
    },
  );

  test('A46 names an image that the host has', () =>
    expectAttachRefused({ image: `sha256:${'cd'.repeat(32)}` }, 'image_refused'));

  test('A41 covers the configuration of the sandbox', async () => {
    const { grants, sessionId } = newSession();
    const grant = await grants.attach();
    host.edge.commandControl(grant.token, utf8(`${new TextDecoder().decode(grant.payload)} `));
    const refusal = await host.edge.controlFrame('refused', ({ session_id }) => session_id === sessionId);
    expect(refusal.code).toBe('args_mismatch');
    expect(host.sandboxes.started).toHaveLength(1);
  });

  test.each([
    ['a name that is none', { 'A=B': '1' }],
    ['a NUL byte', { A: '\0' }],
    ['more than fits', { A: 'x'.repeat(32_000), B: 'x'.repeat(32_000), C: 'x'.repeat(32_000) }],
  ])('A31 has no environment with %s', async (_, environment) => {
    const { sessionId } = await host.requestAttach({ environment });
    const refusal = await host.edge.controlFrame('refused', ({ session_id }) => session_id === sessionId);
    expect(refusal.code).toBe('invalid_request');
    expect(host.sandboxes.started).toHaveLength(1);
    await host.attach({ environment: { A: '1' } });
    expect(host.sandboxes.started[1]?.config.environment).toEqual({ A: '1' });
  });

  test('A40 makes one sandbox when it comes ten times, and none after that one is gone', async () => {
    const { grants, sessionId, tenant } = newSession();
    const grant = await grants.attach();
    for (let count = 0; count < 10; count += 1) host.edge.commandControl(grant.token, grant.payload);
    const peer = host.edge.session({ sessionId, tenant, epoch: 1 });
    await peer.frame('ready');
    const destroy = await grants.destroy();
    peer.command(destroy.token, destroy.payload);
    await peer.changes.until('the end of the link', () => peer.closeCodes[0]);
    host.edge.commandControl(grant.token, grant.payload);
    const refusal = await host.edge.controlFrame('refused', ({ session_id }) => session_id === sessionId);
    expect(refusal.code).toBe('grant_replayed');
    expect(host.sandboxes.started).toHaveLength(2);
  });

  test('A43 is not of an epoch that was seen before', async () => {
    const grant = await session.grants.attach();
    host.edge.commandControl(grant.token, grant.payload);
    const refusal = await host.edge.controlFrame(
      'refused',
      ({ session_id }) => session_id === session.sessionId,
    );
    expect(refusal.code).toBe('fenced');
    expect(host.sandboxes.started[0]?.isDestroyed).toBe(false);
    await expectRuns(await execute());
  });

  test('A48 neither attaches nor destroys the session of another tenant', async () => {
    const stolen = { ...session, tenant: 'tenant-b' };
    const identity = { hostId: host.agent.hostId, ...stolen, epoch: 2, image: SCRIPTED_IMAGE };
    const grants = new Grants(host.edge.keys, identity);
    for (const grant of [await grants.attach(), await grants.destroy()]) {
      const before = host.edge.control.length;
      host.edge.commandControl(grant.token, grant.payload);
      const refusal = await host.edge.changes.until('a refusal', () =>
        host.edge.control.slice(before).find((frame) => frame.type === 'refused'),
      );
      expect(refusal).toMatchObject({ code: 'wrong_session', tenant: 'tenant-b' });
    }
    expect(host.sandboxes.started).toHaveLength(1);
    await expectRuns(await execute());
  });

  test('does not execute anything', async () => {
    const grant = await execute();
    host.edge.commandControl(grant.token, grant.payload);
    const refusal = await host.edge.controlFrame('refused');
    expect(refusal.code).toBe('grant_invalid');
    expect(host.sandboxes.calls).toHaveLength(0);
  });

  test('F12 destroys nothing of a later epoch, be it only being made', async () => {
    const destroy = await session.grants.destroy();
    const attach = await session.grants.attach({}, { epoch: 2 });
    host.edge.commandControl(attach.token, attach.payload);
    host.edge.commandControl(destroy.token, destroy.payload);
    const refusal = await host.edge.controlFrame(
      'refused',
      ({ session_id }) => session_id === session.sessionId,
    );
    expect(refusal.code).toBe('fenced');
    const { sessionId, tenant } = session;
    await host.edge.session({ sessionId, tenant, epoch: 2 }).frame('ready');
    expect(host.sandboxes.started.map(({ isDestroyed }) => isDestroyed)).toEqual([true, false]);
  });

  test('F12 destroys what it names, and says so also where nothing is left', async () => {
    const grant = await session.grants.destroy();
    for (let count = 0; count < 2; count += 1) {
      const before = host.edge.control.length;
      host.edge.commandControl(grant.token, grant.payload);
      await host.edge.changes.until('the answer', () =>
        host.edge.control.slice(before).find((frame) => frame.type === 'destroyed'),
      );
    }
    expect(host.sandboxes.started[0]?.isDestroyed).toBe(true);
  });
});

describe('a key set', () => {
  async function expectSetRefused(token: string): Promise<void> {
    const { readyControlLinks } = host.edge;
    host.edge.sendControl({ type: 'key_set', key_set: token });
    await host.edge.changes.until('a closed control link', () => host.edge.controlCloseCodes[0]);
    expect(host.edge.controlCloseCodes).toEqual([4008]);
    // The host links again, and what it believed before still counts.
    await host.edge.changes.until('a new control link', () =>
      host.edge.readyControlLinks > readyControlLinks ? true : undefined,
    );
    await expectRuns(await execute());
  }

  test('A49 of a lower version is refused as a rollback', async () => {
    const older = await host.edge.keys.signedKeySet();
    host.edge.keys.version = 5;
    host.edge.sendControl({ type: 'key_set', key_set: await host.edge.keys.signedKeySet() });
    await expectSetRefused(older);
  });

  test('A49 of a lower version is refused after a restart too', async () => {
    const older = await host.edge.keys.signedKeySet();
    host.edge.keys.version = 5;
    host.edge.sendControl({ type: 'key_set', key_set: await host.edge.keys.signedKeySet() });
    await journalHolds(host.hostDir, ({ kind, version }) => kind === 'key_set' && version === 5);
    await host.stopAgent();
    host.edge.welcomeKeySet = older;
    await host.restart();
    await host.edge.changes.until('a refused welcome', () =>
      host.edge.controlCloseCodes.includes(4008) ? true : undefined,
    );
    host.edge.welcomeKeySet = undefined;
    await host.agent.ready;
  });

  test('that the pinned root key did not sign is refused', async () => {
    await expectSetRefused(await host.edge.keys.signedKeySet({ version: 9 }, await newEdgeKey()));
  });

  test('of another edge is refused', async () => {
    await expectSetRefused(await host.edge.keys.signedKeySet({ iss: 'https://other.example', version: 9 }));
  });
});

test('the hash in a grant is that of the bytes that were sent', async () => {
  const grant = await execute();
  expect(grant.claims.args_sha256).toBe(hash('sha256', grant.payload));
});
