/** Mutations of valid access tokens, of every kind of key and of the edge itself: none is accepted. */
import { listDurableObjectIds } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { configurationOf } from '../../../worker/configuration.ts';
import { verifyAccessToken } from '../../../worker/identity/access-token.ts';
import { issueAccessToken } from '../../../worker/identity/own-issuer.ts';
import { mutationsOf } from '../../fixtures/token-mutations.ts';
import { nowS, tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { TENANTS_OF_OTHER_ISSUER } from '../issuer-bindings.ts';

const SEED = 20_261_130;
const COUNT = 5_000;
const THROUGH_THE_DOOR = 300;

async function originals(): Promise<string[]> {
  const { ownIssuer } = await configurationOf(env);
  const facts = {
    tenant: 'acme',
    subject: 'alice',
    apiKeyId: `key_${'A'.repeat(22)}`,
    scope: '',
    toolPolicy: null,
    lifetimeS: 600,
  };
  const exp = nowS() + 3_600;
  return [
    await tokenOf({ claims: { exp } }),
    await tokenOf({ claims: { exp, tenant: 'globex', sub: 'bob' } }),
    await tokenOf({ key: 'ec', claims: { exp } }),
    await tokenOf({ key: 'rsa', claims: { exp } }),
    await tokenOf({
      key: 'other',
      claims: {
        exp,
        iss: 'https://other.test',
        tenant: undefined,
        'https://other.test/organisation': TENANTS_OF_OTHER_ISSUER[0],
      },
    }),
    await issueAccessToken(ownIssuer, facts, Date.now()),
  ];
}

test(`of ${COUNT} mutations of valid tokens (seed ${SEED}) none is accepted, and the originals are`, async () => {
  const { tokenIssuers, origin } = await configurationOf(env);
  const verify = (token: string) =>
    verifyAccessToken(token, {
      issuers: tokenIssuers,
      ownOrigin: origin,
      nowMs: Date.now(),
      waitUntil: () => undefined,
    });
  const valid = await originals();
  for (const token of valid) expect(await verify(token)).toMatchObject({ ok: true });
  const accepted: string[] = [];
  for (const token of mutationsOf(valid, { seed: SEED, count: COUNT })) {
    if ((await verify(token)).ok) accepted.push(token);
  }
  expect(accepted).toEqual([]);
  for (const token of valid) expect(await verify(token)).toMatchObject({ ok: true });
});

test('at the door they are 401 or 400, and wake no object', async () => {
  const valid = await originals();
  const before = (await listDurableObjectIds(env.TENANT)).length;
  for (const token of mutationsOf(valid, { seed: SEED + 1, count: THROUGH_THE_DOOR })) {
    // What no header can carry comes to no server.
    if (!/^[\x21-\x7e]+$/.test(token)) continue;
    const { status } = await api('GET', '/v1/sessions', { token });
    expect([400, 401]).toContain(status);
  }
  expect((await listDurableObjectIds(env.TENANT)).length).toBe(before);
  expect((await api('GET', '/v1/tools', { token: valid[0] ?? '' })).status).toBe(200);
});
