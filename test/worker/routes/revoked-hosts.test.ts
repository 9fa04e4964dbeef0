import { env, exports } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { AuditPageSchema } from '../../../shared/audit.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { newId } from '../../../shared/ids.ts';
import { ProblemSchema } from '../../../shared/problem.ts';
import { ReceiptExportSchema, verifyChain } from '../../../shared/receipt-verify.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { snapshotManifestPath } from '../../../shared/snapshot.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { signTransferToken } from '../../../worker/snapshots/transfer-token.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost, workerTransport } from '../harness/fake-host.ts';
import { call, openSession, type TestSession } from '../harness/sessions.ts';
import { OPERATOR_TOKEN, ORIGIN } from '../issuer-bindings.ts';

const operator = { token: OPERATOR_TOKEN };
const alice = () => tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });
let host: HostDouble;
let hosts: HostDouble[];
beforeEach(async () => {
  host = await connectFakeHost();
  hosts = [host];
});
afterEach(() => {
  vi.restoreAllMocks();
  for (const one of hosts) one.close();
});

const revoke = (hostId = host.hostId) => api('DELETE', `/v1/hosts/${hostId}`, operator);

async function sessionNow({ id }: TestSession) {
  return SessionSchema.parse((await api('GET', `/v1/sessions/${id}`, { token: await alice() })).json);
}

async function another(): Promise<HostDouble> {
  const other = await connectFakeHost();
  hosts.push(other);
  return other;
}

async function dial(path: string, headers: Record<string, string> = {}): Promise<number> {
  const authorization = `Bearer ${host.certificate}`;
  const request = new Request(`${ORIGIN}${path}`, {
    headers: { upgrade: 'websocket', authorization, ...headers },
  });
  const response = await exports.default.fetch(request);
  response.webSocket?.accept();
  response.webSocket?.close();
  return response.status;
}

const sessionHeaders = ({ id }: TestSession) => ({
  'sandgate-session': id,
  'sandgate-tenant': 'acme',
  'sandgate-epoch': '1',
});

describe('a host that an operator revokes', () => {
  test('loses its link at once and gets no session, and is in no list', async () => {
    const closed = Promise.withResolvers<number>();
    host.onControlClosed = closed.resolve;
    expect((await revoke()).status).toBe(204);
    expect(await closed.promise).toBe(4031);
    const listed = await api('GET', '/v1/hosts', operator);
    expect(listed.text).not.toContain(host.hostId);
    expect((await api('GET', `/v1/hosts/${host.hostId}`, operator)).status).toBe(404);
    const created = await api('POST', '/v1/sessions', { token: await alice(), body: {} });
    expect(problemIn(created).code).toBe('no_host_available');
  });

  test('loses its sessions: what ran is unknown, and what it says after that is of nobody', async () => {
    const session = await openSession(host);
    const begun = Promise.withResolvers<void>();
    host.script = async (execution) => {
      execution.started();
      begun.resolve();
    };
    const accepted = await session.stub.execute(call('x', { body: { detach: true } }));
    await begun.promise;
    const link = host.session(session.id);
    await revoke();
    await host.until(() => link.heard.some(({ type }) => type === 'fenced'));
    await eventually(async () =>
      expect(await sessionNow(session)).toMatchObject({ state: 'error', error: { code: 'host_lost' } }),
    );
    if (!accepted.ok) throw new Error(accepted.detail);
    const path = `/v1/sessions/${session.id}/executions/${accepted.value.execution_id}`;
    const ended = ExecutionSchema.parse((await api('GET', path, { token: await alice() })).json);
    expect(ended).toMatchObject({ status: 'unknown', reason: 'host_lost' });
  });

  test('leaves a session that asked for it to another host', async () => {
    const session = await openSession(host, { on_host_loss: 'rebuild' });
    const other = await another();
    await revoke();
    await host.until(() => host.session(session.id).heard.some(({ type }) => type === 'fenced'));
    expect(await session.stub.execute(call('again'))).toMatchObject({
      value: { status: 'succeeded', stdout: 'again', state_lost: true },
    });
    expect((await sessionNow(session)).host_id).toBe(other.hostId);
  });

  test('is in the log of acts, and the same again does no harm', async () => {
    expect([(await revoke()).status, (await revoke()).status]).toEqual([204, 204]);
    await eventually(async () => {
      const page = AuditPageSchema.parse((await api('GET', '/v1/audit?limit=2', operator)).json);
      const acts = page.entries.map(({ operation, target, status }) => ({ operation, target, status }));
      const act = { operation: 'revokeHost', target: { host_id: host.hostId }, status: 204 };
      expect(acts).toEqual([act, act]);
    });
  });

  test('is revoked by the same request again where its object did not hear of it', async () => {
    const broken = vi.spyOn(env.HOST, 'getByName').mockImplementation(() => {
      throw Object.assign(new Error('busy'), { overloaded: true });
    });
    expect((await revoke()).status).toBe(503);
    broken.mockRestore();
    expect((await revoke()).status).toBe(204);
    expect(await dial('/v1/links/control')).toBe(401);
  });
});

describe('the certificate of a revoked host', () => {
  test('opens no link, neither its own nor that of a session, while those of another host are open', async () => {
    const session = await openSession(host);
    expect(await dial('/v1/links/sessions', sessionHeaders(session))).toBe(101);
    const other = await another();
    await revoke();
    expect(await dial('/v1/links/control')).toBe(401);
    expect(await dial('/v1/links/sessions', sessionHeaders(session))).toBe(401);
    await other.connect();
  });

  test('says so to a plain request, which is told of no more than an upgrade where it is good', async () => {
    const ask = async () => {
      const authorization = `Bearer ${host.certificate}`;
      return exports.default.fetch(new Request(`${ORIGIN}/v1/links/control`, { headers: { authorization } }));
    };
    expect(ProblemSchema.parse(await (await ask()).json()).code).toBe('invalid_request');
    await revoke();
    const refused = await ask();
    expect(refused.status).toBe(401);
    const { code, detail } = ProblemSchema.parse(await refused.json());
    expect({ code, detail }).toEqual({
      code: 'unauthenticated',
      detail: 'the host was revoked; it may be enrolled anew, with another key',
    });
  });

  test('is worth nothing on a link that was being made as it was revoked', async () => {
    const challenged = Promise.withResolvers<void>();
    const closed = Promise.withResolvers<number>();
    const socket = await workerTransport.connect(
      '/v1/links/control',
      { authorization: `Bearer ${host.certificate}` },
      { message: () => challenged.resolve(), closed: closed.resolve },
    );
    await challenged.promise;
    await revoke();
    expect(await closed.promise).toBe(4031);
    socket.close();
    const status = await env.HOST.getByName(host.hostId).status();
    expect(status).toMatchObject({ connected: false });
  });

  test.each([{}, { on_host_loss: 'rebuild' }] as const)(
    'is worth nothing on a link of a session that was being made as it was revoked: %j',
    async (asked) => {
      const session = await openSession(host, asked);
      const challenged = [1, 2].map(() => Promise.withResolvers<void>());
      const closed = [1, 2].map(() => Promise.withResolvers<number>());
      // That of the next epoch too, which it may guess.
      for (const [index, epoch] of ['1', '2'].entries()) {
        await workerTransport.connect(
          '/v1/links/sessions',
          {
            ...sessionHeaders(session),
            authorization: `Bearer ${host.certificate}`,
            'sandgate-epoch': epoch,
          },
          { message: () => challenged[index]?.resolve(), closed: (code) => closed[index]?.resolve(code) },
        );
      }
      await Promise.all(challenged.map(({ promise }) => promise));
      await revoke();
      expect(await Promise.all(closed.map(({ promise }) => promise))).toEqual([1000, 1000]);
    },
  );

  test('brings and fetches no snapshot by a token that it was given before', async () => {
    const { hostId } = host;
    const configuration = await configurationOf(env);
    const token = async (direction: 'put' | 'get', of = hostId) => {
      const session = `ses_${'a'.repeat(38)}`;
      const claims = { host: of, tenant: 'acme', session, snapshot: newId('snp'), epoch: 1, direction };
      const path = snapshotManifestPath(claims.snapshot);
      const signed = await signTransferToken(claims, configuration);
      return workerTransport.send(direction === 'put' ? 'PUT' : 'GET', path, signed);
    };
    const other = await another();
    await revoke();
    expect([(await token('get')).status, (await token('put')).status]).toEqual([401, 401]);
    expect((await token('get', other.hostId)).status).toBe(404);
  });
});

describe('receipts of a revoked host', () => {
  test('verify where they were signed before, and its key says since when it does not count', async () => {
    const session = await openSession(host);
    await session.stub.execute(call('before'));
    const path = `/v1/sessions/${session.id}/receipts`;
    const read = async () =>
      ReceiptExportSchema.parse((await api('GET', path, { token: await alice() })).json);
    expect((await read()).keys.hosts).toMatchObject([{ host_id: host.hostId, revoked_at: null }]);
    // Not in the second in which the call was signed.
    const sincePassed = Math.floor(Date.now() / 1_000);
    await eventually(() => expect(Math.floor(Date.now() / 1_000)).toBeGreaterThan(sincePassed));
    await revoke();
    const { keys, receipts } = await read();
    const revokedAt = keys.hosts[0]?.revoked_at ?? 0;
    expect(Math.abs(revokedAt - Date.now() / 1_000)).toBeLessThan(60);
    expect(await verifyChain(receipts, keys, session.id)).toMatchObject({ ok: true });
    const since = keys.hosts.map((key) => ({ ...key, revoked_at: revokedAt - 3_600 }));
    expect(await verifyChain(receipts, { ...keys, hosts: since }, session.id)).toMatchObject({
      ok: false,
      code: 'key_revoked',
    });
  });
});
