import { SignJWT } from 'jose';
import { beforeAll, describe, expect, test } from 'vitest';
import { generatePrivateJwk, importPrivateKey, importPublicKey, keyIdOf } from '../../shared/ed25519.ts';
import { type GrantClaims, type GrantPolicy, signGrant, verifyGrant } from '../../shared/grant.ts';
import { newId } from '../../shared/ids.ts';
import { type KeySet, signKeySet, verifyKeySet } from '../../shared/key-set.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../../shared/limits.ts';
import { mutationsOf } from '../fixtures/token-mutations.ts';
import { newTestSessionId } from './receipt-fixture.ts';

const NOW_S = 1_800_000_000;
const hostId = newId('hst');

interface Keys {
  keyId: string;
  privateKey: CryptoKey;
  publicKey: CryptoKey;
}

async function makeKeys(): Promise<Keys> {
  const jwk = await generatePrivateJwk();
  const imported = await importPublicKey(jwk);
  if (imported === undefined) throw new Error('a generated key did not import');
  return { keyId: await keyIdOf(jwk), privateKey: await importPrivateKey(jwk), publicKey: imported.key };
}

let edge: Keys;
let policy: GrantPolicy;

beforeAll(async () => {
  edge = await makeKeys();
  policy = {
    hostId,
    issuer: 'https://edge.test',
    keys: new Map([[edge.keyId, edge.publicKey]]),
    nowS: NOW_S,
  };
});

function claims(changes: Partial<GrantClaims> = {}): GrantClaims {
  return {
    iss: 'https://edge.test',
    aud: `host:${hostId}`,
    sub: 'agent-1',
    tenant: 'acme',
    sid: newTestSessionId(),
    epoch: 1,
    seq: 1,
    act: 'execute',
    exec: newId('exe'),
    tool: 'python',
    tool_version: '1',
    relay: 'bounded',
    stdin: false,
    args_sha256: 'a'.repeat(64),
    image: `sha256:${'b'.repeat(64)}`,
    limits: { ...DEFAULT_RESOURCE_LIMITS, timeout_ms: 1000 },
    egress: 'none',
    jti: newId('jti'),
    iat: NOW_S,
    exp: NOW_S + 60,
    ...changes,
  };
}

async function judge(token: string | undefined, nowS = NOW_S): Promise<string> {
  const verified = await verifyGrant(token, { ...policy, nowS });
  return verified.ok ? 'granted' : verified.code;
}

async function signed(header: object, payload: object, key: CryptoKey): Promise<string> {
  return new SignJWT({ ...payload }).setProtectedHeader({ alg: 'Ed25519', ...header }).sign(key);
}

describe('a grant', () => {
  test('that the edge signed for this host is accepted', async () => {
    expect(await judge(await signGrant(claims(), edge))).toBe('granted');
  });

  test('that is absent is refused as no_grant', async () => {
    expect(await judge(undefined)).toBe('no_grant');
    expect(await judge('')).toBe('no_grant');
  });

  test('for another host is refused', async () => {
    expect(await judge(await signGrant(claims({ aud: `host:${newId('hst')}` }), edge))).toBe('wrong_host');
  });

  test('is refused before its time beyond the skew, and after it', async () => {
    const token = await signGrant(claims(), edge);
    expect(await judge(token, NOW_S - 30)).toBe('granted');
    expect(await judge(token, NOW_S - 31)).toBe('grant_expired');
    expect(await judge(token, NOW_S + 59)).toBe('granted');
    expect(await judge(token, NOW_S + 60)).toBe('grant_expired');
  });

  test('that lives longer than a minute is refused', async () => {
    expect(await judge(await signGrant(claims({ exp: NOW_S + 61 }), edge))).toBe('grant_invalid');
  });

  test('of another edge, of an unknown key, or with the key id of a known one is refused', async () => {
    const stranger = await makeKeys();
    expect(await judge(await signGrant(claims({ iss: 'https://evil.test' }), edge))).toBe('grant_invalid');
    expect(await judge(await signGrant(claims(), stranger))).toBe('grant_invalid');
    expect(await judge(await signGrant(claims(), { ...stranger, keyId: edge.keyId }))).toBe('grant_invalid');
  });

  test('of another type or with other header fields is refused', async () => {
    const { keyId: kid, privateKey } = edge;
    expect(await judge(await signed({ typ: 'exec-grant+jwt', kid }, claims(), privateKey))).toBe('granted');
    expect(await judge(await signed({ typ: 'at+jwt', kid }, claims(), privateKey))).toBe('grant_invalid');
    expect(await judge(await signed({ kid }, claims(), privateKey))).toBe('grant_invalid');
    expect(
      await judge(
        await signed({ typ: 'exec-grant+jwt', kid, jku: 'https://evil.test' }, claims(), privateKey),
      ),
    ).toBe('grant_invalid');
  });

  test('with alg none or with a secret in place of the key is refused', async () => {
    const token = await signGrant(claims(), edge);
    const [, payload = ''] = token.split('.');
    const header = (alg: string) =>
      Buffer.from(JSON.stringify({ alg, typ: 'exec-grant+jwt', kid: edge.keyId })).toString('base64url');
    expect(await judge(`${header('none')}.${payload}.`)).toBe('grant_invalid');
    expect(await judge(`${header('HS256')}.${payload}.${'A'.repeat(43)}`)).toBe('grant_invalid');
  });

  test('with a claim too many, too few or of the wrong type is refused', async () => {
    const header = { typ: 'exec-grant+jwt', kid: edge.keyId };
    const { jti: _left, ...rest } = claims();
    expect(await judge(await signed(header, rest, edge.privateKey))).toBe('grant_invalid');
    expect(await judge(await signed(header, { ...claims(), root: true }, edge.privateKey))).toBe(
      'grant_invalid',
    );
    expect(await judge(await signed(header, { ...claims(), epoch: '1' }, edge.privateKey))).toBe(
      'grant_invalid',
    );
    expect(await judge(await signed(header, { ...claims(), image: 'python:latest' }, edge.privateKey))).toBe(
      'grant_invalid',
    );
  });

  test('with any one character of its signature changed is refused', async () => {
    const token = await signGrant(claims(), edge);
    const start = token.lastIndexOf('.') + 1;
    for (let index = start; index < token.length; index += 1) {
      const other = token[index] === 'A' ? 'B' : 'A';
      expect(await judge(token.slice(0, index) + other + token.slice(index + 1))).toBe('grant_invalid');
    }
  });
});

describe('a key set', () => {
  const keySet = (version: number): KeySet => ({
    iss: 'https://edge.test',
    version,
    grant_keys: [dated()],
    receipt_keys: [dated()],
  });
  const dated = () => ({
    kid: 'k1',
    jwk: { kty: 'OKP', crv: 'Ed25519', x: 'A'.repeat(43) } as const,
    not_before: null,
    not_after: null,
    revoked_at: null,
  });

  test('signed by the pinned root is accepted from the pinned version on', async () => {
    const token = await signKeySet(keySet(3), edge);
    expect(await verifyKeySet(token, edge.publicKey, 3)).toMatchObject({ ok: true });
    expect(await verifyKeySet(token, edge.publicKey, 4)).toMatchObject({ code: 'key_set_rollback' });
  });

  test('signed by another key, or a grant in its place, is refused', async () => {
    const stranger = await makeKeys();
    expect(await verifyKeySet(await signKeySet(keySet(3), stranger), edge.publicKey, 1)).toMatchObject({
      ok: false,
    });
    expect(await verifyKeySet(await signGrant(claims(), edge), edge.publicKey, 1)).toMatchObject({
      ok: false,
    });
  });
});

describe('mutations of valid grants', () => {
  const SEED = 20_261_130;
  const COUNT = 5_000;

  test(`are all refused: ${COUNT} of seed ${SEED}, and the originals are not`, async () => {
    const acts = ['execute', 'attach', 'stdin', 'destroy'] as const;
    const valid = await Promise.all(acts.map((act) => signGrant(claims({ act }), edge)));
    for (const token of valid) expect(await verifyGrant(token, policy)).toMatchObject({ ok: true });
    const accepted: string[] = [];
    for (const token of mutationsOf(valid, { seed: SEED, count: COUNT })) {
      if ((await verifyGrant(token, policy)).ok) accepted.push(token);
    }
    expect(accepted).toEqual([]);
  });
});
