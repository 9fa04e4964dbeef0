/** A25: tokens that are bound to a key, and proofs of that key. */
import {
  evictDurableObject,
  listDurableObjectIds,
  runDurableObjectAlarm,
  runInDurableObject,
} from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { calculateJwkThumbprint, exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose';
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { sha256Hex } from '../../../shared/digest.ts';
import { toBase64Url, utf8 } from '../../../shared/encoding.ts';
import { encoded, nowS, tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, api, problemIn } from '../harness/api.ts';
import { OPERATOR_TOKEN, ORIGIN } from '../issuer-bindings.ts';

const PATH = '/v1/sessions';

interface Key {
  alg: string;
  privateKey: CryptoKey;
  privateJwk: JWK;
  jwk: JWK;
  thumbprint: string;
}

async function keyOf(alg: string): Promise<Key> {
  const pair = await generateKeyPair(alg, { extractable: true });
  const jwk = await exportJWK(pair.publicKey);
  return {
    alg,
    privateKey: pair.privateKey,
    privateJwk: await exportJWK(pair.privateKey),
    jwk,
    thumbprint: await calculateJwkThumbprint(jwk),
  };
}

let key: Key;
let elliptic: Key;
let thief: Key;
let token: string;
beforeAll(async () => {
  [key, elliptic, thief] = await Promise.all([keyOf('Ed25519'), keyOf('ES256'), keyOf('Ed25519')]);
  token = await boundTo(key);
});
afterEach(() => vi.useRealTimers());

const boundTo = ({ thumbprint }: Key, tenant = 'acme') =>
  tokenOf({ claims: { tenant, cnf: { jkt: thumbprint }, exp: nowS() + 3_600 } });

async function athOf(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', utf8(text));
  return toBase64Url(new Uint8Array(digest));
}

interface Change {
  by?: Key;
  header?: Record<string, unknown>;
  claims?: Record<string, unknown>;
  of?: string;
}

async function proofOf({ by = key, header = {}, claims = {}, of = token }: Change = {}): Promise<string> {
  const payload = {
    jti: crypto.randomUUID(),
    htm: 'GET',
    htu: `${ORIGIN}${PATH}`,
    iat: nowS(),
    ath: await athOf(of),
    ...claims,
  };
  return new SignJWT(payload)
    .setProtectedHeader({ alg: by.alg, typ: 'dpop+jwt', jwk: by.jwk, ...header })
    .sign(by.privateKey);
}

function ask(
  proof: string | undefined,
  { scheme = 'DPoP', of = token, method = 'GET', path = PATH } = {},
): Promise<ApiAnswer> {
  const headers = { Authorization: `${scheme} ${of}`, ...(proof === undefined ? {} : { DPoP: proof }) };
  return api(method, path, { headers });
}

describe('a token that is bound to a key', () => {
  test('is taken with a proof of its key for this request, of either kind of key', async () => {
    expect((await ask(await proofOf())).status).toBe(200);
    expect((await ask(await proofOf(), { scheme: 'dPoP' })).status).toBe(200);
    const of = await boundTo(elliptic);
    expect((await ask(await proofOf({ by: elliptic, of }), { of })).status).toBe(200);
    const query = await proofOf({ claims: { htu: `${ORIGIN}${PATH}` } });
    expect((await ask(query, { path: `${PATH}?limit=3` })).status).toBe(200);
  });

  test('is no Bearer token, with a proof or without', async () => {
    for (const proof of [undefined, await proofOf()]) {
      const answer = await ask(proof, { scheme: 'Bearer' });
      expect(problemIn(answer)).toMatchObject({ status: 401, code: 'unauthenticated' });
      expect(answer.headers.get('WWW-Authenticate')).toMatch(
        /^DPoP error="invalid_token".*algs="Ed25519 ES256"$/,
      );
    }
  });

  test('is not taken twice with one proof', async () => {
    const proof = await proofOf();
    expect((await ask(proof)).status).toBe(200);
    expect(problemIn(await ask(proof)).detail).toBe('the proof was used before');
    const same = { jti: 'one-and-the-same' };
    expect((await ask(await proofOf({ claims: same }))).status).toBe(200);
    expect((await ask(await proofOf({ claims: same }))).status).toBe(401);
    // Another key may use the same id.
    const of = await boundTo(thief);
    expect((await ask(await proofOf({ by: thief, of, claims: same }), { of })).status).toBe(200);
  });

  test('is taken by one of fifty who bring one proof at once, also when the object was lost between', async () => {
    const at = Date.now();
    const proof = await proofOf({ claims: { iat: nowS() + 20 } });
    const answers = await Promise.all(Array.from({ length: 50 }, () => ask(proof)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    const used = env.PROOFS.get(env.PROOFS.idFromName(key.thumbprint));
    await evictDurableObject(used);
    expect(problemIn(await ask(proof)).detail).toBe('the proof was used before');
    // To the end of its moment, which it has put off.
    vi.useFakeTimers({ toFake: ['Date'], now: at + 79_000 });
    await runDurableObjectAlarm(used);
    expect(problemIn(await ask(proof)).detail).toBe('the proof was used before');
    vi.useFakeTimers({ toFake: ['Date'], now: at + 300_000 });
    await runDurableObjectAlarm(used);
    await runInDurableObject(used, async (_object, state) => {
      expect(state.storage.sql.exec('SELECT * FROM proof').toArray()).toEqual([]);
      expect(await state.storage.getAlarm()).toBeNull();
    });
  });

  test('over its rate is refused with its proof unspent, and asks no object', async () => {
    const limits = { tenant: { requests_per_minute: 2 } };
    const set = await api('PUT', '/v1/tenants/hurried/limits', { token: OPERATOR_TOKEN, body: limits });
    expect(set.status, set.text).toBe(200);
    const hurried = await keyOf('Ed25519');
    const of = await boundTo(hurried, 'hurried');
    const proof = () => proofOf({ by: hurried, of });
    for (const status of [200, 200, 429]) expect((await ask(await proof(), { of })).status).toBe(status);
    const taken = () =>
      runInDurableObject(env.PROOFS.get(env.PROOFS.idFromName(hurried.thumbprint)), (_object, state) =>
        state.storage.sql.exec('SELECT * FROM proof').toArray(),
      );
    const before = await taken();
    const kept = await proof();
    for (let n = 0; n < 3; n += 1) {
      const refused = await ask(kept, { of });
      expect(problemIn(refused)).toMatchObject({ status: 429, code: 'rate_limited', limit: { limit: 2 } });
      expect(refused.headers.get('RateLimit')).toMatch(/^"tenant";r=0;t=\d+$/);
    }
    expect(await taken()).toEqual(before);
    // Who has not the key learns nothing of the rate.
    expect((await ask(await proofOf({ by: thief, of }), { of })).status).toBe(401);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 });
    const again = await proofOf({ by: hurried, of, claims: { iat: nowS() } });
    expect((await ask(again, { of })).status).toBe(200);
  });

  const REFUSED: Record<string, () => Promise<string | undefined>> = {
    'no proof': async () => undefined,
    'two proofs': async () => `${await proofOf()}, ${await proofOf()}`,
    'a proof of another key': () => proofOf({ by: thief }),
    'a proof that shows the key and is signed by another': () => proofOf({ by: { ...thief, jwk: key.jwk } }),
    'another method': () => proofOf({ claims: { htm: 'POST' } }),
    'another path': () => proofOf({ claims: { htu: `${ORIGIN}/v1/tools` } }),
    'another host': () => proofOf({ claims: { htu: `https://evil.test${PATH}` } }),
    'an address with a name in it': () => proofOf({ claims: { htu: `http://a@127.0.0.1:8787${PATH}` } }),
    'no address': () => proofOf({ claims: { htu: 'sessions' } }),
    'the digest of another token': async () => proofOf({ claims: { ath: await athOf('x') } }),
    'the digest in another spelling': async () => proofOf({ claims: { ath: await sha256Hex(token) } }),
    'no digest': () => proofOf({ claims: { ath: undefined } }),
    'a proof that is old': () => proofOf({ claims: { iat: nowS() - 90 } }),
    'a proof of the future': () => proofOf({ claims: { iat: nowS() + 60 } }),
    'a time that is none': () => proofOf({ claims: { iat: 1e15 } }),
    'no id': () => proofOf({ claims: { jti: undefined } }),
    'an access token as the proof': async () => token,
    'another type': () => proofOf({ header: { typ: 'JWT' } }),
    'the private key in it': () => proofOf({ header: { jwk: key.privateJwk } }),
    'no key in it': () => proofOf({ header: { jwk: undefined } }),
    'a key to be fetched': () => proofOf({ header: { jku: 'https://evil.test/k' } }),
    'an algorithm of another key': () => proofOf({ header: { jwk: elliptic.jwk } }),
    'no signature': async () => `${(await proofOf()).split('.').slice(0, 2).join('.')}.`,
    'alg none': async () =>
      `${encoded({ alg: 'none', typ: 'dpop+jwt', jwk: { ...key.jwk } })}.${(await proofOf()).split('.')[1]}.`,
    'a signature that was cut': async () => (await proofOf()).slice(0, -4),
    'more parts': async () => `${await proofOf()}.AAAA`,
    'kilobytes of it': () => proofOf({ claims: { more: 'x'.repeat(8_000) } }),
  };

  test.each(Object.entries(REFUSED))('with %s is refused, and wakes nothing', async (_name, make) => {
    const awake = async () => [
      (await listDurableObjectIds(env.TENANT)).length,
      (await listDurableObjectIds(env.PROOFS)).length,
    ];
    const before = await awake();
    const of = token;
    const answer = await ask(await make(), { of });
    expect(problemIn(answer)).toMatchObject({ status: 401, code: 'unauthenticated' });
    const challenge = answer.headers.get('WWW-Authenticate') ?? '';
    expect(challenge).toMatch(/^DPoP error="invalid_dpop_proof", error_description="/);
    expect(challenge).toContain('resource_metadata=');
    expect(await awake()).toEqual(before);
  });

  test('is refused with the proof of a moment ago once that is over', async () => {
    const proof = await proofOf();
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 });
    expect(problemIn(await ask(proof)).detail).toBe('iat is not of this moment');
  });
});

test('a token that is bound to nothing proves nothing by coming with a proof', async () => {
  const of = await tokenOf();
  const answer = await ask(await proofOf({ of }), { of });
  expect(problemIn(answer).detail).toBe('the token is bound to no key');
  expect((await api('GET', PATH, { token: of, headers: { DPoP: await proofOf({ of }) } })).status).toBe(200);
});

test('a proof is neither an access token nor an operator’s', async () => {
  const proof = await proofOf();
  expect((await api('GET', PATH, { token: proof })).status).toBe(401);
  expect((await api('GET', '/v1/hosts', { token: proof })).status).toBe(401);
  expect((await ask(await proofOf(), { of: proof })).status).toBe(401);
});

test('what the edge takes is in its metadata', async () => {
  const metadata = await api('GET', '/.well-known/oauth-protected-resource');
  expect(metadata.json).toMatchObject({
    resource: ORIGIN,
    dpop_signing_alg_values_supported: ['Ed25519', 'ES256'],
    dpop_bound_access_tokens_required: false,
    jwks_uri: `${ORIGIN}/.well-known/jwks.json`,
  });
});
