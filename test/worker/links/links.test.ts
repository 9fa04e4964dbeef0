import { listDurableObjectIds } from 'cloudflare:test';
import { env, exports } from 'cloudflare:workers';
import { SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { generatePrivateJwk, importPrivateKey, publicPart } from '../../../shared/ed25519.ts';
import { newId as newHandle } from '../../../shared/ids.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { caller, newId } from '../harness/sessions.ts';
import { ORIGIN } from '../issuer-bindings.ts';

let host: HostDouble;
beforeAll(async () => {
  host = await connectFakeHost();
});
afterAll(() => host.close());

async function upgrade(path: string, headers: Record<string, string>): Promise<Response> {
  return exports.default.fetch(
    new Request(`${ORIGIN}${path}`, { headers: { upgrade: 'websocket', ...headers } }),
  );
}

interface Claims {
  iss?: string;
  typ?: string;
  kid?: string;
  sub?: string;
}

async function certificate(claims: Claims & { foreignKey?: boolean } = {}): Promise<string> {
  const { root, origin } = await configurationOf(env);
  const jwk = await generatePrivateJwk();
  const key = claims.foreignKey === true ? await importPrivateKey(jwk) : root.privateKey;
  return new SignJWT({ pool: 'default', cnf: { jwk: publicPart(jwk) } })
    .setProtectedHeader({ alg: 'Ed25519', typ: claims.typ ?? 'host-cert+jwt', kid: claims.kid ?? root.keyId })
    .setIssuer(claims.iss ?? origin)
    .setSubject(claims.sub ?? newHandle('hst'))
    .setIssuedAt()
    .sign(key);
}

async function objects(): Promise<number> {
  return (await listDurableObjectIds(env.HOST)).length + (await listDurableObjectIds(env.SESSION)).length;
}

describe('an upgrade of a link', () => {
  test('with the certificate of this edge is accepted', async () => {
    const response = await upgrade('/v1/links/control', { authorization: `Bearer ${await certificate()}` });
    expect(response.status).toBe(101);
    response.webSocket?.accept();
    response.webSocket?.close();
  });

  test.each<[string, () => Promise<string>]>([
    ['no certificate', async () => ''],
    ['another scheme', async () => `Basic ${host.certificate}`],
    ['a certificate by another key', async () => `Bearer ${await certificate({ foreignKey: true })}`],
    [
      'a certificate of another edge',
      async () => `Bearer ${await certificate({ iss: 'https://evil.test' })}`,
    ],
    [
      'a token of another type by the same key',
      async () => `Bearer ${await certificate({ typ: 'edge-keys+jwt' })}`,
    ],
    ['another key id', async () => `Bearer ${await certificate({ kid: 'other' })}`],
    ['a subject that is no host', async () => `Bearer ${await certificate({ sub: 'alice' })}`],
    ['an unsigned certificate', async () => `Bearer ${host.certificate.replace(/[^.]+$/, '')}`],
    ['the key set', async () => `Bearer ${(await configurationOf(env)).signedKeySet}`],
    ['half a megabyte', async () => `Bearer ${'a'.repeat(500_000)}`],
  ])('with %s is refused, and no object wakes', async (_name, authorization) => {
    const before = await objects();
    for (const path of ['/v1/links/control', '/v1/links/sessions']) {
      const response = await upgrade(path, { authorization: await authorization() });
      expect(response.status).toBe(401);
      expect(response.webSocket).toBeNull();
    }
    expect(await objects()).toBe(before);
  });

  test('that is no upgrade is refused', async () => {
    const response = await exports.default.fetch(
      new Request(`${ORIGIN}/v1/links/control`, { headers: { authorization: `Bearer ${host.certificate}` } }),
    );
    expect(response.status).toBe(400);
  });

  test.each<[string, Record<string, string>, number]>([
    ['no session', { 'sandgate-session': '' }, 404],
    ['a session id that nobody made', { 'sandgate-session': `ses_${'a'.repeat(38)}` }, 404],
    ['the session of another tenant', { 'sandgate-tenant': 'other' }, 404],
    ['a tenant that is no name', { 'sandgate-tenant': 'a:b' }, 404],
    ['no epoch', { 'sandgate-epoch': '' }, 400],
    ['an epoch below one', { 'sandgate-epoch': '0' }, 400],
    ['an epoch that is no number', { 'sandgate-epoch': '1e999' }, 400],
  ])('of a session link with %s is refused, and no object wakes (A27)', async (_name, change, status) => {
    const before = await objects();
    const response = await upgrade('/v1/links/sessions', {
      authorization: `Bearer ${host.certificate}`,
      'sandgate-session': await newId(),
      'sandgate-tenant': caller.tenant,
      'sandgate-epoch': '1',
      ...change,
    });
    expect(response.status).toBe(status);
    expect(await objects()).toBe(before);
  });

  test('cannot bring the identity that only the Worker may give', async () => {
    const response = await upgrade('/v1/links/control', {
      'sandgate-link': JSON.stringify({ hostId: host.hostId, pool: 'default', publicKeyX: 'a'.repeat(43) }),
    });
    expect(response.status).toBe(401);
  });
});
